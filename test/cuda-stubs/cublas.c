/* cuBLAS and cuBLASLt that compute nothing; built as libcublas.so.13 and libcublasLt.so.13. */
#include <stdlib.h>
#define NOTHING(name) int name(void) { return 0; }
#define MAKES(name) int name(void **handle) { *handle = malloc(64); return 0; }
#ifdef LT
MAKES(cublasLtCreate) MAKES(cublasLtMatmulDescCreate) MAKES(cublasLtMatmulPreferenceCreate)
MAKES(cublasLtMatrixLayoutCreate) MAKES(cublasLtMatrixTransformDescCreate)
NOTHING(cublasLtDestroy) NOTHING(cublasLtMatmul) NOTHING(cublasLtMatmulAlgoConfigSetAttribute)
NOTHING(cublasLtMatmulAlgoGetHeuristic) NOTHING(cublasLtMatmulAlgoInit) NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute) NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute) NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute) NOTHING(cublasLtMatrixTransform)
NOTHING(cublasLtMatrixTransformDescDestroy)
#else
MAKES(cublasCreate_v2)
NOTHING(cublasDestroy_v2) NOTHING(cublasDcopy_v2) NOTHING(cublasDgeam) NOTHING(cublasDgemmBatched)
NOTHING(cublasDgemmStridedBatched) NOTHING(cublasDgemm_v2) NOTHING(cublasDgetrfBatched) NOTHING(cublasDgetriBatched)
NOTHING(cublasGemmBatchedEx) NOTHING(cublasGemmEx) NOTHING(cublasGemmStridedBatchedEx) NOTHING(cublasGetMathMode)
NOTHING(cublasScopy_v2) NOTHING(cublasSetMathMode) NOTHING(cublasSetStream_v2) NOTHING(cublasSgeam)
NOTHING(cublasSgemmBatched) NOTHING(cublasSgemmStridedBatched) NOTHING(cublasSgemm_v2) NOTHING(cublasSgetrfBatched)
NOTHING(cublasSgetriBatched) NOTHING(cublasSscal_v2)
const char *cublasGetStatusName(int status) { return status ? "an error" : "no error"; }
const char *cublasGetStatusString(int status) { return cublasGetStatusName(status); }
#endif
