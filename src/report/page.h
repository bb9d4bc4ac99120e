// One self-contained page: no script, no network, readable on a phone, in dark mode and on paper.
#pragma once

#include <string>
#include <vector>

#include "report/suite_page.h"

namespace veil {

struct PageSource {
  const RecordFolder& folder;
  const SuitePage& suite;
  const Verdict& verdict;
  const std::vector<Plot>& plots;
  std::string output_folder;  // of the page
  std::string pictures;       // the folder of its plots
  std::string plots_hint;     // why there are no pictures; "" if there are
};

std::string make_page(const PageSource& source);

}  // namespace veil
