import type { ServerWritableStream } from '@grpc/grpc-js';
import { CAPABILITIES } from '@matting/proto/contract/capabilities.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { inputFormatToProto, outputFormatToProto } from '@matting/proto/contract/formats.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import {
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  NodeModel,
  type GpuDevice as ProtoGpu,
  SelectableModel as ProtoSelectable,
  NodeState as ProtoState,
  protobufPackage,
  SelectableKind,
  type WatchCapacityRequest,
  WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { CommercialUseGate } from '../models/model-settings.ts';
import { type ExecutionProvider, runtimeOf } from '../models/prepared-model.ts';
import { type Selectable, termsOf } from '../models/selectable.ts';
import type { NodeState, NodeStatus } from '../node-state.ts';
import type { PicturePool } from '../picture/pool/picture-pool.ts';
import { ROLE_LABELS, subjects } from '../pipeline.ts';
import type { Callers } from './callers.ts';
import type { NodeWork } from './matte-handler.ts';

export interface NodeIdentity {
  /** Stable over restarts. */
  readonly nodeId: string;
  readonly bootId: string;
  readonly version: string;
}

interface NodeInfoInputs {
  readonly identity: NodeIdentity;
  readonly work: NodeWork;
  readonly pictures: PicturePool;
  readonly engineBytes: number;
  readonly commercialUse: CommercialUseGate | undefined;
  readonly providerRequested: string;
  readonly providerSelected: ExecutionProvider;
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
      return NodeModel.create({
        model,
        ...file,
        ...fallback,
        licence,
        runtime: runtimeOf(prepared),
      });
    }),
    plan: work.plan.name,
    commercialUseRequired: inputs.commercialUse ?? '',
    finishing: true,
    capabilities: [...CAPABILITIES],
    plans: [work.plan.name],
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
    selectable: [selectableToProto(work.selectable, inputs.engineBytes)],
  };
}

function selectableToProto(selectable: Selectable, memoryBytes: number): ProtoSelectable {
  const { name, kind, goodFor, models, sha256 } = selectable;
  return ProtoSelectable.create({
    ...{ name, goodFor, sha256, memoryBytes, default: true },
    kind: KIND_TO_PROTO[kind],
    ...termsOf(selectable),
    runs: models.map(({ model, role }) => ({ model: model.model, role: ROLE_LABELS[role] })),
  });
}

const KIND_TO_PROTO = {
  plan: SelectableKind.SELECTABLE_KIND_PLAN,
  model: SelectableKind.SELECTABLE_KIND_MODEL,
} as const satisfies Record<Selectable['kind'], SelectableKind>;

const BYTES_PER_MIB = 1024 * 1024;

export function gpuToProto({ facts, outReason }: GpuDevice): ProtoGpu {
  return {
    id: facts.id,
    name: facts.name,
    memoryMib: Math.round(facts.memoryBytes / BYTES_PER_MIB),
    up: outReason === undefined,
    outReason: outReason ?? '',
  };
}

/*
 * Writes the state at once, at every change and every second. A silent stream means a dead node. A
 * slow watcher gets fewer messages, never a queue of old ones.
 */

/** Stale views cost refusals: with 50 ms 1.3 to 1.5 times as many as with 20 (simulated). */
const CHANGE_INTERVAL_MS = 20;
const REPEAT_INTERVAL_MS = 1000;
/** A control plane has one stream, a direct caller a few. */
const FLEET_WATCHERS_MAX = 256;
const DIRECT_WATCHERS_EACH_MAX = 8;

const STATE_TO_PROTO = {
  starting: ProtoState.NODE_STATE_STARTING,
  serving: ProtoState.NODE_STATE_SERVING,
  draining: ProtoState.NODE_STATE_DRAINING,
  failed: ProtoState.NODE_STATE_FAILED,
} as const satisfies Record<NodeState, ProtoState>;

type Capacity = Omit<WatchCapacityResponse, 'sequence'>;

export function readCapacity(
  status: NodeStatus,
  started: { readonly work: NodeWork; readonly pictures: PicturePool } | undefined,
): Capacity {
  const state = STATE_TO_PROTO[status.state];
  if (started === undefined) return WatchCapacityResponse.create({ state });
  const { work, pictures } = started;
  const { images, imagesMax, megapixelsFree } = work.admission.snapshot();
  const { decodeMsPerMegapixel, encodeMsPerMegapixel, decodeRates, encodeRates } =
    pictures.snapshot();
  return WatchCapacityResponse.create({
    state,
    imagesInFlight: images,
    imagesFree: Math.max(0, imagesMax - images),
    megapixelsFree,
    ...readLoad(work),
    decodeMsPerMegapixel,
    encodeMsPerMegapixel,
    decodeRates: [...decodeRates].map(([format, msPerMegapixel]) => ({
      format: inputFormatToProto(format),
      msPerMegapixel,
    })),
    encodeRates: [...encodeRates].map(([format, msPerMegapixel]) => ({
      format: outputFormatToProto(format),
      msPerMegapixel,
    })),
  });
}

function readLoad({ pipeline, plan }: NodeWork) {
  const engines = subjects(plan).map(run => run.engines.snapshot());
  return {
    enginesReady: Math.min(...engines.map(({ enginesReady }) => enginesReady)),
    estimatedWaitMs: Math.round(pipeline.estimatedWaitMs(plan)),
    // The models of a plan run one after the other.
    inferMs: engines.reduce((sum, { inferMs }) => sum + inferMs, 0),
  };
}

type Watcher = ServerWritableStream<WatchCapacityRequest, WatchCapacityResponse>;

export class CapacityWatchers {
  readonly #read: () => Capacity;
  readonly #callers: Callers;
  readonly #watchers = new Map<Watcher, { sequence: number; readonly owner: string }>();
  #changeTimer: NodeJS.Timeout | undefined;
  #repeatTimer: NodeJS.Timeout | undefined;
  #writtenAtMs = Number.NEGATIVE_INFINITY;

  constructor(read: () => Capacity, callers: Callers) {
    this.#read = read;
    this.#callers = callers;
  }

  readonly handle = (call: Watcher): void => {
    const owner = this.#ownerWithRoom(call);
    if (owner === undefined) {
      const detail = 'The caller already has as many capacity streams on this node as it can.';
      call.emit('error', toStatus(new ContractError('CALLER_OVER_LIMIT', detail)));
      return;
    }
    this.#watchers.set(call, { sequence: 0, owner });
    call.once('cancelled', () => this.#leave(call));
    this.#writeTo(call, this.#read());
    this.#repeatTimer ??= setInterval(() => this.flush(), REPEAT_INTERVAL_MS);
  };

  changed(): void {
    if (this.#watchers.size === 0 || this.#changeTimer !== undefined) return;
    const sinceMs = performance.now() - this.#writtenAtMs;
    // Waits even if the last write is long ago, to gather changes of one tick.
    const waitMs = Math.max(0, CHANGE_INTERVAL_MS - sinceMs);
    this.#changeTimer = setTimeout(() => this.flush(), waitMs);
  }

  close(): void {
    this.flush();
    for (const call of [...this.#watchers.keys()]) {
      this.#leave(call);
      call.end();
    }
  }

  #ownerWithRoom(call: Watcher): string | undefined {
    const caller = this.#callers.requireCaller(call);
    const [owner, max] =
      caller.kind === 'fleet'
        ? ['fleet', FLEET_WATCHERS_MAX]
        : [`direct ${caller.name}`, DIRECT_WATCHERS_EACH_MAX];
    const watching = [...this.#watchers.values()].filter(other => other.owner === owner);
    return watching.length < max ? owner : undefined;
  }

  #leave(call: Watcher): void {
    this.#watchers.delete(call);
    if (this.#watchers.size > 0) return;
    clearInterval(this.#repeatTimer);
    clearTimeout(this.#changeTimer);
    this.#repeatTimer = undefined;
    this.#changeTimer = undefined;
  }

  flush(): void {
    clearTimeout(this.#changeTimer);
    this.#changeTimer = undefined;
    if (this.#watchers.size === 0) return;
    this.#writtenAtMs = performance.now();
    this.#repeatTimer?.refresh();
    const capacity = this.#read();
    for (const call of this.#watchers.keys()) {
      // A slow watcher still has an unread message, and the next one repeats everything.
      if (!call.writableNeedDrain && call.writableLength === 0) this.#writeTo(call, capacity);
    }
  }

  #writeTo(call: Watcher, capacity: Capacity): void {
    const watcher = this.#watchers.get(call);
    if (watcher === undefined) return;
    watcher.sequence += 1;
    call.write({ ...capacity, sequence: watcher.sequence });
  }
}
