/* cuDNN that computes nothing: one engine for every graph, without a workspace. libcudnn.so.9. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
enum { TYPE_INT64 = 3, TYPE_DESCRIPTOR = 15, TYPE_INT32 = 23 };
#define NOTHING(name) int name(void) { return 0; }
#define MAKES(name) int name(void **handle) { *handle = calloc(1, 64); return 0; }
size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) { return status ? "an error of the stub" : "no error"; }
void cudnnGetLastErrorString(char *message, size_t bytes) { if (bytes > 0) message[0] = 0; }
int cudnnBackendCreateDescriptor(int type, void **descriptor) { (void)type; *descriptor = calloc(1, 64); return 0; }
int cudnnBackendDestroyDescriptor(void *descriptor) { free(descriptor); return 0; }
/* Descriptors: one result. Numbers: zero. Notes and the like: none. */
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t asked, int64_t *found, void *array) {
  (void)descriptor; (void)name;
  int64_t there = type == TYPE_DESCRIPTOR || type == TYPE_INT64 || type == TYPE_INT32;
  if (found) *found = there;
  if (array && asked > 0 && type == TYPE_INT64) memset(array, 0, 8);
  if (array && asked > 0 && type == TYPE_INT32) memset(array, 0, 4);
  return 0;
}
MAKES(cudnnCreate) MAKES(cudnnCreateActivationDescriptor) MAKES(cudnnCreateConvolutionDescriptor)
MAKES(cudnnCreateDropoutDescriptor) MAKES(cudnnCreateFilterDescriptor) MAKES(cudnnCreateLRNDescriptor)
MAKES(cudnnCreatePoolingDescriptor) MAKES(cudnnCreateRNNDataDescriptor) MAKES(cudnnCreateRNNDescriptor)
MAKES(cudnnCreateReduceTensorDescriptor) MAKES(cudnnCreateTensorDescriptor)
NOTHING(cudnnActivationForward) NOTHING(cudnnAddTensor) NOTHING(cudnnBackendExecute) NOTHING(cudnnBackendFinalize)
NOTHING(cudnnBackendSetAttribute) NOTHING(cudnnBatchNormalizationForwardInference)
NOTHING(cudnnBatchNormalizationForwardTraining) NOTHING(cudnnConvolutionBiasActivationForward)
NOTHING(cudnnConvolutionForward) NOTHING(cudnnDeriveBNTensorDescriptor) NOTHING(cudnnDestroy)
NOTHING(cudnnDestroyActivationDescriptor) NOTHING(cudnnDestroyConvolutionDescriptor)
NOTHING(cudnnDestroyDropoutDescriptor) NOTHING(cudnnDestroyFilterDescriptor) NOTHING(cudnnDestroyLRNDescriptor)
NOTHING(cudnnDestroyPoolingDescriptor) NOTHING(cudnnDestroyRNNDataDescriptor) NOTHING(cudnnDestroyRNNDescriptor)
NOTHING(cudnnDestroyReduceTensorDescriptor) NOTHING(cudnnDestroyTensorDescriptor) NOTHING(cudnnDropoutGetStatesSize)
NOTHING(cudnnFindConvolutionForwardAlgorithmEx) NOTHING(cudnnGetConvolutionForwardAlgorithm_v7)
NOTHING(cudnnGetConvolutionForwardWorkspaceSize) NOTHING(cudnnGetRNNTempSpaceSizes) NOTHING(cudnnGetRNNWeightParams)
NOTHING(cudnnGetReductionIndicesSize) NOTHING(cudnnGetReductionWorkspaceSize) NOTHING(cudnnGetStream)
NOTHING(cudnnGetTensorNdDescriptor) NOTHING(cudnnLRNCrossChannelForward) NOTHING(cudnnPoolingForward)
NOTHING(cudnnRNNForward) NOTHING(cudnnReduceTensor) NOTHING(cudnnSetActivationDescriptor)
NOTHING(cudnnSetConvolutionGroupCount) NOTHING(cudnnSetConvolutionMathType) NOTHING(cudnnSetConvolutionNdDescriptor)
NOTHING(cudnnSetDropoutDescriptor) NOTHING(cudnnSetFilterNdDescriptor) NOTHING(cudnnSetLRNDescriptor)
NOTHING(cudnnSetPoolingNdDescriptor) NOTHING(cudnnSetRNNDataDescriptor) NOTHING(cudnnSetRNNDescriptor_v8)
NOTHING(cudnnSetReduceTensorDescriptor) NOTHING(cudnnSetStream) NOTHING(cudnnSetTensorNdDescriptor)
NOTHING(cudnnSoftmaxForward)
