// Empty: ATenCUDAGeneral.h includes it, and nothing of it is used.
#pragma once
