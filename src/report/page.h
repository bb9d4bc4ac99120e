// One page that holds everything: no script, no network, readable on a telephone, in the dark and on paper.
#pragma once

#include <string>
#include <vector>

#include "report/plots.h"
#include "report/records.h"
#include "report/verdict.h"

namespace veil {

struct PageSource {
  const RecordFolder& folder;
  const Verdict& verdict;
  const std::vector<Plot>& plots;
  std::string output_folder;  // the page will lie here
  std::string pictures;       // and its plots here
  std::string plots_hint;     // why there are no pictures; "" if there are
};

std::string make_page(const PageSource& source);

}  // namespace veil
