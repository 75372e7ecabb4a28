// Prints the CUDA backend's description of the cuBLASLt that it finds.
#include <cstdio>

#include "blas.h"

int main() {
  const bool used = bowline::detail::cuda::Blas::open() != nullptr;
  std::printf("%s (%s)\n", bowline::detail::cuda::Blas::description().c_str(),
              used ? "used" : "not used");
}
