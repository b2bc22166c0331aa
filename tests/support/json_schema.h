#pragma once
// The part of JSON Schema that docs/schemas uses, for tests: type, const, enum, properties, required,
// additionalProperties, items, oneOf, minimum, maximum, $ref within the document.

#include <nlohmann/json.hpp>

#include <string>

namespace attnscope::support {

using SchemaJson = nlohmann::json;

inline bool schema_type_fits(const SchemaJson& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

// The first thing in which `value` does not fit `schema`, with its place; empty when all fits.
inline std::string schema_mismatch(const SchemaJson& schema, const SchemaJson& value, const SchemaJson& root,
                                   const std::string& at = "$") {
  if (schema.contains("$ref")) {
    const std::string ref = schema["$ref"];
    return schema_mismatch(root.at(SchemaJson::json_pointer(ref.substr(1))), value, root, at);
  }
  if (schema.contains("const") && value != schema["const"]) return at + ": is not " + schema["const"].dump();
  if (schema.contains("enum")) {
    bool found = false;
    for (const SchemaJson& allowed : schema["enum"]) found |= allowed == value;
    if (!found) return at + ": " + value.dump() + " is none of " + schema["enum"].dump();
  }
  if (schema.contains("type")) {
    bool fits = false;
    if (schema["type"].is_array())
      for (const SchemaJson& type : schema["type"]) fits |= schema_type_fits(value, type);
    else
      fits = schema_type_fits(value, schema["type"]);
    if (!fits) return at + ": " + value.dump().substr(0, 60) + " is no " + schema["type"].dump();
  }
  if (value.is_number()) {
    if (schema.contains("minimum") && value.get<double>() < schema["minimum"].get<double>())
      return at + ": too small";
    if (schema.contains("maximum") && value.get<double>() > schema["maximum"].get<double>())
      return at + ": too large";
  }
  if (schema.contains("oneOf")) {
    int fitting = 0;
    for (const SchemaJson& option : schema["oneOf"])
      fitting += schema_mismatch(option, value, root, at).empty() ? 1 : 0;
    if (fitting != 1) return at + ": fits " + std::to_string(fitting) + " of oneOf";
  }
  if (value.is_array() && schema.contains("items"))
    for (size_t i = 0; i < value.size(); ++i)
      if (std::string m =
              schema_mismatch(schema["items"], value[i], root, at + "[" + std::to_string(i) + "]");
          !m.empty())
        return m;
  if (!value.is_object()) return {};
  for (const SchemaJson& name : schema.value("required", SchemaJson::array()))
    if (!value.contains(name.get<std::string>())) return at + ": lacks " + name.dump();
  const SchemaJson properties = schema.value("properties", SchemaJson::object());
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      if (std::string m = schema_mismatch(properties[name], member, root, at + "." + name); !m.empty())
        return m;
    } else if (schema.contains("additionalProperties") && schema["additionalProperties"] == false) {
      return at + ": has an unknown member " + name;
    }
  }
  return {};
}

}  // namespace attnscope::support
