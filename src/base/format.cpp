// The one place where LibTorch's copy of fmt is compiled. Built header-only it would cost every
// file seconds.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
template FMT_API auto detail::dragonbox::to_decimal(float x) noexcept
    -> dragonbox::decimal_fp<float>;
template FMT_API auto detail::dragonbox::to_decimal(double x) noexcept
    -> dragonbox::decimal_fp<double>;
namespace detail {
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
}  // namespace detail
FMT_END_NAMESPACE
