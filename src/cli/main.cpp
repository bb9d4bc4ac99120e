#include <fmt/core.h>

int main() { fmt::print("veil\n"); }
