#include "report/html/page.h"

#include <gtest/gtest.h>

#include <string>

namespace attnscope::report {
namespace {

Page small_page() {
  Page page;
  page.kind = PageKind::kCompare;
  page.version = "0.1.0";
  page.verdict = "flash is fastest";
  page.result_json = R"({"variants":[]})";
  return page;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST(RenderHtml, HoldsEveryAssetAndStaysUnderTheSizeLimit) {
  const std::string html = render_html(small_page());
  EXPECT_NE(html.find("Chart.js v3"), std::string::npos);
  EXPECT_NE(html.find("function compare_page"), std::string::npos);
  EXPECT_NE(html.find("--k-gemm"), std::string::npos);
  EXPECT_LT(html.size(), 1'500'000u);
}

TEST(RenderHtml, HostileNamesCannotLeaveTheDataElement) {
  Page page = small_page();
  page.verdict = "</title><script>alert(1)</script>@NONCE@";
  page.result_json = R"({"variants":[{"name":"</script><script>alert(2)</script><!--"}]})";
  page.timelines.push_back({"t", {{0, 0, 1, "</ScRiPt><img onerror=x>", "host", 0, -1}}, 0, ""});
  page.timelines[0].events[0].name += "\xff\xfe";
  const std::string html = render_html(page);
  const std::string plain = render_html(small_page());
  for (const char* tag : {"<script", "</script", "</ScRiPt", "<img", "<!--"})
    EXPECT_EQ(count(html, tag), count(plain, tag)) << tag;
  EXPECT_NE(html.find("&lt;/title&gt;"), std::string::npos);
  EXPECT_NE(html.find("@NONCE@"), std::string::npos) << "a placeholder inside data is data";
}

TEST(RenderHtml, PolicyForbidsNetworkAndTheNonceIsFresh) {
  const std::string a = render_html(small_page()), b = render_html(small_page());
  EXPECT_NE(a.find("default-src 'none'"), std::string::npos);
  const auto nonce = [](const std::string& html) { return html.substr(html.find("nonce-"), 28); };
  EXPECT_NE(nonce(a), nonce(b));
}

TEST(RenderHtml, EmbeddedTraceIsBase64) {
  Page page = small_page();
  page.traces.push_back({"naive", "naive.json.gz", std::string("\x1f\x8b\x00\xff", 4)});
  EXPECT_NE(render_html(page).find("H4sA/w=="), std::string::npos);
}

}  // namespace
}  // namespace attnscope::report
