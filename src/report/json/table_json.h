#pragma once
// attnscope.table/1: docs/schemas/table.schema.json.

#include "analysis/metrics.h"
#include "analysis/table.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace attnscope::report {

std::string table_json(const Table& table, std::string_view source, size_t row_limit,
                       std::string_view version);
// The rows of `table --outermost`.
std::string outermost_json(const Metrics& metrics, TableSort sort, std::string_view source, size_t row_limit,
                           std::string_view version);

}  // namespace attnscope::report
