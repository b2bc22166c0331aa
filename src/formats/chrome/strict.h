#pragma once
// Strict JSON out of whatever was read.

#include <string>
#include <string_view>

namespace attnscope::formats::chrome {

// text as a JSON string with its quotes: escaped, valid UTF-8.
void append_string(std::string_view text, std::string& out);
// Whether text is a number as strict JSON spells it, and one that a double can hold.
bool strict_number(std::string_view text);
// Whether text is one value of strict JSON, nested no deeper than kMaxDepth, that every parser takes: valid
// UTF-8, surrogates in pairs.
bool is_strict(std::string_view text);
// Lenient JSON text (raw control bytes, N/A, missing commas, mismatched brackets) as strict JSON, valid by
// construction; what is already strict keeps its values. Nothing becomes null.
void append_strict(std::string_view raw, std::string& out);

}  // namespace attnscope::formats::chrome
