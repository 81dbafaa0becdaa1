import {
  SelectableKind,
  type SelectableModel,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { NodeAbilities, NodeReport, NodeSnapshot } from '../node-view.ts';
import { type Selectables, selectablesFromProto } from '../selectable.ts';

const SEEN = {
  nodeId: 'node',
  bootId: 'boot',
  inputFormats: new Set(['jpeg', 'png'] as const),
  outputFormats: new Set(['png', 'webp'] as const),
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: 0,
  megapixelsAloneMax: 167,
  engines: 1,
};

export const ABILITIES: NodeAbilities = { ...SEEN, imagesMax: 4, megapixelsMax: 400 };

export const REPORT: NodeReport = {
  imagesInFlight: 0,
  imagesFree: 4,
  megapixelsFree: 400,
  enginesReady: 1,
  estimatedWaitMs: 0,
  inferMs: 100,
  decodeMsPerMegapixel: 1,
  encodeMsPerMegapixel: 1,
  decodeRates: new Map(),
  encodeRates: new Map(),
};

export function snapshotWith(changes: Partial<NodeSnapshot>): NodeSnapshot {
  return {
    ...SEEN,
    ...REPORT,
    megapixelsRefused: undefined,
    ownImages: 0,
    reportedAtMs: 0,
    unreportedImages: 0,
    proven: true,
    ejectedUntilMs: 0,
    ...changes,
  };
}

/** As a node of 0.3.0 lists it in addition to its plan. */
export function saidModel(name: string, changes: Partial<SelectableModel> = {}): SelectableModel {
  const terms = { commercialUse: 'yes', reason: 'MIT', source: 'https://example.com' };
  return {
    name,
    kind: SelectableKind.SELECTABLE_KIND_MODEL,
    default: false,
    sha256: 'aa',
    memoryBytes: 1e9,
    goodFor: 'hair',
    weights: terms,
    trainingData: { ...terms, commercialUse: 'unclear' },
    runs: [],
    ...changes,
  };
}

export const saidPlan = (name: string, changes: Partial<SelectableModel> = {}) =>
  saidModel(name, { kind: SelectableKind.SELECTABLE_KIND_PLAN, default: true, ...changes });

export const modelsSeen = (...reported: SelectableModel[]): Selectables =>
  selectablesFromProto(reported);
