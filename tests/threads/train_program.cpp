// `veil` with the train command alone (left_out_commands.cpp).
#include "cli/command.h"

int main(int count, char** words) {
  return veil::run_veil({words + 1, words + count});
}
