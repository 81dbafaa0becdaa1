/** GetNodeInfo: what this node is. Made once, when it begins to serve. */
import { inputFormatToProto, outputFormatToProto } from '#contract/formats.ts';
import { IMAGE_BYTES_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '#contract/limits.ts';
import {
  type GetNodeInfoResponse,
  NodeModel,
  type GpuDevice as ProtoGpu,
  protobufPackage,
} from '#gen/matting/v1/matte_service.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { CommercialUseGate } from '../models/model-settings.ts';
import type { ExecutionProvider } from '../models/prepared-model.ts';
import type { PicturePool } from '../picture/pool/picture-pool.ts';
import type { NodeWork } from './matte-handler.ts';

export interface NodeIdentity {
  /** Stable over restarts. */
  readonly nodeId: string;
  /** A UUID of this start of the process. */
  readonly bootId: string;
  readonly version: string;
}

export interface NodeInfoInputs {
  readonly identity: NodeIdentity;
  readonly work: NodeWork;
  readonly pictures: PicturePool;
  /** The operator's gate on models; undefined: none. */
  readonly commercialUse: CommercialUseGate | undefined;
  /** Of object storage at which it gets and puts files. */
  readonly directOrigins: readonly string[];
  readonly providerRequested: string;
  readonly providerSelected: ExecutionProvider;
  /** For people. */
  readonly device: string;
}

export function createNodeInfo(inputs: NodeInfoInputs): GetNodeInfoResponse {
  const { work, pictures } = inputs;
  const { inputFormats, outputFormats, jxlPixelsMax } = pictures.capabilities;
  const { imagesMax, megapixelsMax, megapixelsAloneMax } = work.admission.limits;
  return {
    ...inputs.identity,
    protocolVersion: protobufPackage,
    models: work.plan.runs.map(({ model: prepared }) => {
      const { model, version, sha256, precision, inputWidth, inputHeight } = prepared;
      const { precisionFallback, licence } = prepared;
      const size = { inputWidth, inputHeight };
      const fallback = precisionFallback !== undefined && { precisionFallback };
      const file = { version, sha256, precision, ...size };
      return NodeModel.create({ model, ...file, ...fallback, licence });
    }),
    plan: work.plan.name,
    commercialUseRequired: inputs.commercialUse ?? '',
    finishing: true,
    directOrigins: [...inputs.directOrigins],
    plans: work.plans.map(({ name }) => name),
    executionProviderRequested: inputs.providerRequested,
    executionProviderSelected: inputs.providerSelected,
    inputFormats: inputFormats.map(inputFormatToProto),
    outputFormats: outputFormats.map(outputFormatToProto),
    limits: {
      imageBytesMax: IMAGE_BYTES_MAX,
      imageSidePxMax: IMAGE_SIDE_PX_MAX,
      imagePixelsMax: IMAGE_PIXELS_MAX,
      jxlPixelsMax,
      megapixelsMax,
      imagesMax,
      megapixelsAloneMax: Math.max(megapixelsMax, megapixelsAloneMax),
    },
    engines: work.plan.runs.reduce((sum, { engines }) => sum + engines.snapshot().engines, 0),
    pictureWorkers: pictures.snapshot().workers,
    device: inputs.device,
    gpus: [],
  };
}

const BYTES_PER_MIB = 1024 * 1024;

/** As it is now. */
export function gpuToProto({ facts, outReason }: GpuDevice): ProtoGpu {
  return {
    id: facts.id,
    name: facts.name,
    memoryMib: Math.round(facts.memoryBytes / BYTES_PER_MIB),
    up: outReason === undefined,
    outReason: outReason ?? '',
  };
}
