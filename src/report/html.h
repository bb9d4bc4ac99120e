// What becomes of foreign text in a page.
#pragma once

#include <string>
#include <string_view>

#include "base/table.h"

namespace veil {

// Text for elements and quoted attributes: & < > " ' are written as entities.
std::string escaped(std::string_view text);

// A relative address of a path below or beside the page: every byte but letters, digits, - _ . ~ and / is percent-encoded,
// and "./" stands before, so no text can become a scheme or another host.
std::string address(const std::string& relative_path);

// A table that scrolls by itself where it is wider than the screen.
std::string html_table(const Table& table, const std::string& caption);

}  // namespace veil
