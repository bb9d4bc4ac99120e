// Pieces of a page: text that cannot become markup, addresses, tables, and the style sheet.
#pragma once

#include <string>
#include <string_view>

#include "base/table.h"

namespace veil {

// Text for elements and quoted attributes: & < > " ' are written as entities.
std::string escaped(std::string_view text);

// A relative address: every byte except letters, digits, - _ . ~ and / is percent-encoded, and "./"
// comes first, so that no text can become a scheme or another host.
std::string address(const std::string& relative_path);

// A table that scrolls if it is wider than the screen.
std::string html_table(const Table& table, const std::string& caption);

extern const char* const kPageStyle;  // the CSS of every page

}  // namespace veil
