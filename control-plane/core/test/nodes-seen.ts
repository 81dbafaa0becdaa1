/** Nodes as a replica sees them, for tests of what it decides by that. */
import type { NodeAbilities, NodeReport, NodeSnapshot } from '../dispatch/dispatch-policy.ts';

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
