// Parts that all report pages share.
#pragma once

#include <string>
#include <vector>

#include "report/plots.h"
#include "report/verdict.h"

namespace veil {

// Up to the beginning of <main>; `kind` is what was run, such as "veil suite linear".
std::string page_head(const std::string& kind, const std::string& question,
                      const std::string& headline);
std::string page_section(const std::string& title, const std::string& body);  // "" for no body
std::string page_caveats(const std::vector<std::string>& caveats);            // "" for none
std::string page_cards(const std::vector<KeyFigure>& figures);
// Pictures from the folder `pictures`, each with its figures as a table. Those behind the first
// twelve are folded up. `plots_hint` says why there are none.
std::string page_plots(const std::vector<Plot>& plots, const std::string& pictures,
                       const std::string& plots_hint);
std::string page_end(const std::string& source);  // "from 12 records"

}  // namespace veil
