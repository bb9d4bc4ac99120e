#pragma once

namespace veil {

extern const char* const kPageStyle;  // the page's CSS

}  // namespace veil
