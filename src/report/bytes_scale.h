// One unit for bytes that are compared with each other: a column of a table, or all of it.
#pragma once

#include <optional>
#include <string>

namespace veil {

class BytesScale {
 public:
  void see(std::optional<double> bytes);
  // In GiB where the largest that was seen has one, in MiB otherwise: "0.50 GiB", "0.0005 MiB"; "-" for none.
  std::string show(std::optional<double> bytes) const;
  std::string show_change(std::optional<double> bytes) const;  // with its sign

 private:
  double largest_ = 0;
};

}  // namespace veil
