#include "cli/command.h"

int main(int count, char** words) {
  return veil::run_veil({words + 1, words + count});
}
