#pragma once
// The page's files, embedded at build time from web/ (cmake/AttnscopeEmbed.cmake generates the definitions).

#include <string_view>

namespace attnscope::report {

std::string_view asset_html();
std::string_view asset_css();
std::string_view asset_js();             // web/js/*.js in name order
std::string_view asset_chart_library();  // Chart.js, with its licence comment

}  // namespace attnscope::report
