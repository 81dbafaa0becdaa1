import assert from 'node:assert/strict';
import { isProven, judged, NEW_NODE, type NodeTrust } from '@matting/nodes/node-trust.ts';
import { type NodeAbility, type NodeSnapshot, NodeView } from '@matting/nodes/node-view.ts';
import {
  ABILITIES,
  REPORT as IDLE,
  modelsSeen,
  saidPlan,
  snapshotWith,
} from '@matting/nodes/test/nodes-seen.ts';
import { CAPABILITIES } from '@matting/proto/contract/capabilities.ts';
import { type Finishing, NO_MARGINS } from '@matting/proto/contract/finishing.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import ava from 'ava';
import { AdvertisedNodes } from './advertised-nodes.ts';
import {
  admittedMegapixels,
  canDo,
  type JobNeeds,
  needsBeforeImage,
  needsOf,
  type ProcessingOptions,
} from './job-needs.ts';
import { fleetRefusalOf } from './node-refusals.ts';
import {
  expectedWaitMs,
  hasRoomFor,
  isIncapable,
  pickNode,
  settleCropRun,
  waitMsMax,
  workMs,
} from './pick-node.ts';

const PROVEN_SUCCESSES = 5;
const FAULTS_IN_A_ROW_MAX = 5;
const EJECTION_MS_MAX = 300_000;
const EJECTION_MS = 30_000;
const test = ava.serial;

const snapshot = (changes: Partial<NodeSnapshot> = {}) =>
  snapshotWith({ imagesFree: 2, megapixelsFree: 100, imagesInFlight: 1, ...changes });

const photo: JobNeeds = { inputFormat: 'jpeg', pixels: 12_000_000, outputFormat: 'png' };

const anySnapshot = fc
  .record({
    imagesFree: fc.integer({ min: -1, max: 3 }),
    megapixelsFree: fc.constantFrom(0, 5, 12, 200),
    imagesInFlight: fc.nat(3),
    ownImages: fc.nat(2),
    proven: fc.boolean(),
    ejectedUntilMs: fc.constantFrom(0, 0, 5, 900),
    waitsMs: fc.constantFrom(0, 0, 10, 500),
    enginesReady: fc.integer({ min: 0, max: 2 }),
    unreportedImages: fc.integer({ min: 0, max: 3 }),
    inputFormats: fc.constantFrom(new Set(['jpeg'] as const), new Set(['png'] as const)),
  })
  .map(({ waitsMs, ...changes }) => snapshot({ ...changes, estimatedWaitMs: waitsMs }));

const anyFleet = fc
  .array(anySnapshot, { maxLength: 40, size: 'max' })
  .map(nodes =>
    nodes.map((node, index) => ({ ...node, nodeId: `node-${index}`, bootId: `boot-${index}` })),
  );

const anyRandom = fc
  .array(fc.double({ min: 0, max: 0.999_999, noNaN: true }), { minLength: 1, maxLength: 9 })
  .map(values => {
    let next = 0;
    return () => values[next++ % values.length] ?? 0;
  });

const someBoots = fc
  .uniqueArray(fc.integer({ min: 0, max: 39 }), { maxLength: 10 })
  .map(indices => {
    return new Set(indices.map(index => `boot-${index}`));
  });

const NOW_MS = 100;
const now = { nowMs: NOW_MS, waitedMs: 0 };

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

const mayTake = (node: NodeSnapshot) =>
  canDo(node, photo) && hasRoomFor(node, photo) && expectedWaitMs(node, NOW_MS) <= waitMsMax(0);

test('pickNode › picks only a node that can do it, would take it soon and did not refuse it', t => {
  holds(t, [anyFleet, anyRandom, someBoots], (fleet, random, excludedBoots) => {
    const choice = pickNode(fleet, photo, { ...now, random, excludedBoots });
    if (choice.kind !== 'picked') return;
    assert.ok(mayTake(choice.node));
    assert.ok(!excludedBoots.has(choice.node.bootId));
    assert.equal(choice.waitMsMax, waitMsMax(0));
  });
});

test('pickNode › says why there is none', t => {
  holds(t, [anyFleet, anyRandom, someBoots], (fleet, random, excludedBoots) => {
    const capable = fleet.filter(node => !excludedBoots.has(node.bootId) && canDo(node, photo));
    const { kind } = pickNode(fleet, photo, { ...now, random, excludedBoots });
    assert.equal(kind === 'no-nodes', fleet.length === 0);
    assert.equal(kind === 'incapable', fleet.length > 0 && capable.length === 0);
    assert.equal(kind === 'incapable', isIncapable(fleet, photo, excludedBoots));
    const good = capable.filter(node => node.ejectedUntilMs <= NOW_MS);
    // Half of the fleet is ejected at most, so a lone ejected node may be taken.
    if (capable.length > 0 && !capable.some(mayTake)) assert.equal(kind, 'busy');
    if (good.some(mayTake)) assert.equal(kind, 'picked');
  });
});

test('pickNode › says when time alone makes room, and has it then', t => {
  holds(t, [anyFleet, anyRandom], (fleet, random) => {
    const choice = pickNode(fleet, photo, { ...now, random });
    if (choice.kind !== 'busy') return;
    const { retryInMs } = choice;
    const places = fleet.some(node => canDo(node, photo) && hasRoomFor(node, photo));
    if (!places) assert.equal(retryInMs, undefined);
    if (retryInMs === undefined) return;
    assert.ok(retryInMs > 0);
    const later = { ...now, nowMs: NOW_MS + Math.ceil(retryInMs), random };
    const thenOut = fleet.some(node => node.ejectedUntilMs > NOW_MS);
    // Between reports only the wait shrinks: images sent meanwhile still count.
    const owed = fleet.some(node => node.unreportedImages > 0);
    if (!thenOut && !owed) assert.equal(pickNode(fleet, photo, later).kind, 'picked');
  });
});

const CROPPING = { capabilities: new Set(['crop_run']) };
const pickFor = (fleet: readonly NodeSnapshot[], needs: JobNeeds, random: () => number) =>
  pickNode(fleet, settleCropRun(fleet, needs, NOW_MS).needs, { ...now, random });

test('settleCropRun › a correction waits for nodes with runs on crops while one serves', t => {
  const everySecond = (nodes: readonly NodeSnapshot[]) =>
    nodes.map((node, index) => (index % 2 ? { ...node, ...CROPPING } : node));
  holds(t, [anyFleet.map(everySecond), anyRandom], (fleet, random) => {
    const choice = pickFor(fleet, { ...photo, cropRun: {} }, random);
    const able = fleet.filter(node => node.capabilities && canDo(node, photo));
    if (able.some(node => node.ejectedUntilMs <= NOW_MS)) {
      assert.ok(choice.kind !== 'incapable');
      if (choice.kind === 'picked') assert.ok(choice.node.capabilities?.has('crop_run'));
      if (able.some(node => mayTake(node) && node.ejectedUntilMs <= NOW_MS)) {
        assert.equal(choice.kind, 'picked');
      }
    } else if (able.length === 0) {
      assert.deepEqual(settleCropRun(fleet, { ...photo, cropRun: {} }, NOW_MS).needs, photo);
    }
  });
});

test('settleCropRun › takes the first job’s model as a picture that names it', t => {
  const models = modelsSeen(saidPlan('heavy'));
  const [without, loaded] = [
    snapshot({ ...CROPPING, nodeId: 'without', bootId: '1', imagesInFlight: 0 }),
    snapshot({ ...CROPPING, nodeId: 'loaded', bootId: '3', models, onlyByName: true }),
  ] as const;
  const withRun: JobNeeds = { ...photo, cropRun: { model: 'heavy' } };
  const choice = pickFor([without, loaded], withRun, () => 0);
  t.is(choice.kind === 'picked' && choice.node.nodeId, 'loaded');
  t.is(choice.kind === 'picked' && choice.waitMsMax, 50);
  const { needs } = settleCropRun([without, loaded], withRun, NOW_MS);
  t.is(admittedMegapixels(needs), admittedMegapixels(photo));
  t.is(workMs(loaded, needs), workMs(loaded, { ...photo, model: 'heavy' }));
  t.deepEqual(settleCropRun([without], withRun, NOW_MS).needs, photo);
  const ejected = { ...loaded, ejectedUntilMs: NOW_MS + 1 };
  t.deepEqual(settleCropRun([without, ejected], withRun, NOW_MS).needs, photo);
});

test('settleCropRun › leaves out a node whose run failed, and then the run', t => {
  const [one, other] = [
    snapshot({ ...CROPPING, bootId: '1' }),
    snapshot({ ...CROPPING, bootId: '2' }),
  ] as const;
  const memory = { excludedBoots: new Set<string>(), extraFailed: new Set(['1']) };
  const settled = settleCropRun([one, other], { ...photo, cropRun: {} }, NOW_MS, memory);
  t.deepEqual(settled.needs.capabilities, ['crop_run']);
  t.deepEqual([...(settled.excludedBoots ?? [])], ['1']);
  const alone = settleCropRun([one], { ...photo, cropRun: {} }, NOW_MS, memory);
  t.deepEqual([alone.needs, alone.excludedBoots], [photo, memory.excludedBoots]);
});

/** With fewer nodes, one that is not avoided is nearly always present. */
const nearlyAllNodes = fc.uniqueArray(fc.nat(39), { maxLength: 3 }).map(others => {
  const indices = Array.from({ length: 40 }, (_, index) => index);
  return new Set(indices.filter(each => !others.includes(each)).map(each => `node-${each}`));
});

test('pickNode › returns to an avoided node only if no other good one is routable', t => {
  holds(t, [anyFleet, anyRandom, nearlyAllNodes], (fleet, random, avoidedNodes) => {
    const choice = pickNode(fleet, photo, { ...now, random, avoidedNodes });
    if (choice.kind !== 'picked' || !avoidedNodes.has(choice.node.nodeId)) return;
    const others = fleet.filter(
      node => !avoidedNodes.has(node.nodeId) && canDo(node, photo) && node.ejectedUntilMs <= NOW_MS,
    );
    assert.deepEqual(others, []);
  });
});

test('pickNode › takes the first to finish in a small fleet, of those with a free engine if there are', t => {
  holds(t, [anyFleet, anyRandom], (fleet, random) => {
    const small = fleet.slice(0, 15).map(node => ({ ...node, ejectedUntilMs: 0 }));
    const choice = pickNode(small, photo, { ...now, random });
    if (choice.kind !== 'picked') return;
    const finishMs = (node: NodeSnapshot) => expectedWaitMs(node, NOW_MS) + workMs(node, photo);
    const free = small.filter(mayTake);
    const idle = free.filter(node => node.imagesInFlight < node.enginesReady);
    const compared = idle.length > 0 ? idle : free;
    assert.equal(finishMs(choice.node), Math.min(...compared.map(finishMs)));
  });
});

test('pickNode › in a large fleet never takes the slowest, and reaches every other node', t => {
  const fleet = Array.from({ length: 30 }, (_, index) =>
    snapshot({ nodeId: `node-${index}`, bootId: `boot-${index}`, inferMs: 100 + index }),
  );
  const random = seeded(1);
  const picked = new Set<string>();
  for (let pick = 0; pick < 3000; pick += 1) {
    const choice = pickNode(fleet, photo, { ...now, random });
    t.is(choice.kind, 'picked');
    if (choice.kind === 'picked') picked.add(choice.node.nodeId);
  }
  t.false(picked.has('node-29'));
  t.is(picked.size, 29);
});

test('pickNode › in a large fleet finds the one node that is free', t => {
  const fleet = Array.from({ length: 400 }, (_, index) =>
    snapshot({ nodeId: `node-${index}`, imagesFree: index === 200 ? 1 : 0 }),
  );
  const random = seeded(2);
  for (let pick = 0; pick < 50; pick += 1) {
    const choice = pickNode(fleet, photo, { ...now, random });
    t.is(choice.kind === 'picked' && choice.node.nodeId, 'node-200');
  }
});

test('pickNode › counts jobs started since the last report', t => {
  const fleet = [
    snapshot({ nodeId: 'a', estimatedWaitMs: 0, unreportedImages: 2, imagesInFlight: 3 }),
    snapshot({ nodeId: 'b', estimatedWaitMs: 50 + NOW_MS }),
  ];
  const choice = pickNode(fleet, photo, { ...now, random: () => 0 });
  t.is(choice.kind === 'picked' && choice.node.nodeId, 'b');
});

test('pickNode › lets a job that has waited long wait longer on a node', t => {
  const fleet = [snapshot({ estimatedWaitMs: NOW_MS + 50 + 500 })];
  const random = () => 0;
  t.is(pickNode(fleet, photo, { ...now, random }).kind, 'busy');
  const waited = { nowMs: NOW_MS, waitedMs: 60_000, random };
  t.is(pickNode(fleet, photo, waited).kind, 'picked');
});

test('pickNode › sends a large image to the fast node, whatever the other formats cost there', t => {
  const rates = (png: number, webp: number) => ({
    encodeRates: new Map([
      ['png', png],
      ['webp', webp],
    ] as const),
  });
  const fleet = [
    snapshot({ nodeId: 'png', ...rates(10, 500) }),
    snapshot({ nodeId: 'webp', ...rates(500, 10) }),
  ];
  for (const outputFormat of ['png', 'webp'] as const) {
    const choice = pickNode(fleet, { ...photo, outputFormat }, { ...now, random: () => 0 });
    t.is(choice.kind === 'picked' && choice.node.nodeId, outputFormat);
  }
});

const fleetOf = (count: number, ejected: number) =>
  Array.from({ length: count }, (_, index) =>
    snapshot({
      nodeId: `node-${index}`,
      bootId: `boot-${index}`,
      ejectedUntilMs: index < ejected ? NOW_MS + 1 + index : 0,
    }),
  );
const pickedOf = (fleet: NodeSnapshot[], nowMs: number) => {
  const random = seeded(7);
  const names = new Set<string>();
  for (let pick = 0; pick < 2000; pick += 1) {
    const choice = pickNode(fleet, photo, { nowMs, waitedMs: 0, random });
    if (choice.kind === 'picked') names.add(choice.node.nodeId);
  }
  return names;
};

test('ejected nodes › get nothing, half of the fleet at most, the last to return first', t => {
  holds(
    t,
    [fc.integer({ min: 1, max: 20 }), fc.nat(20)],
    (count, some) => {
      const ejected = Math.min(some, count);
      const picked = pickedOf(fleetOf(count, ejected), NOW_MS);
      const out = Math.min(ejected, Math.floor(count / 2));
      for (let index = 0; index < count; index += 1) {
        const isOut = index < ejected && index >= ejected - out;
        assert.equal(picked.has(`node-${index}`), !isOut, `node-${index} of ${count}`);
      }
    },
    { numRuns: 25 },
  );
});

test('ejected nodes › are used if they alone can do the job', t => {
  const fleet = fleetOf(4, 1).map((node, index) =>
    index === 0 ? node : { ...node, outputFormats: new Set(['webp'] as const) },
  );
  t.deepEqual([...pickedOf(fleet, NOW_MS)], ['node-0']);
});

test('slow start › gives a new node an image an engine until it has proved itself', t => {
  const fresh = { proven: false, enginesReady: 2 };
  t.truthy(hasRoomFor(snapshot({ ...fresh, ownImages: 1 }), photo));
  t.true(!hasRoomFor(snapshot({ ...fresh, ownImages: 2 }), photo));
  t.truthy(hasRoomFor(snapshot({ ...fresh, proven: true, ownImages: 2 }), photo));
});

const jxl: JobNeeds = { inputFormat: 'jxl', pixels: 50_000_000, outputFormat: 'png' };
const decoding = new Set(['jxl', 'jpeg'] as const);

test('canDo › keeps JPEG XL off nodes without it, and large ones off those with a bound', t => {
  t.false(canDo(snapshot({ inputFormats: decoding }), jxl));
  const small = snapshot({ inputFormats: decoding, jxlPixelsMax: 40_000_000 });
  t.false(canDo(small, jxl));
  t.true(canDo(small, { ...jxl, pixels: 30_000_000 }));
  t.is(canDo(small, { ...jxl, pixels: null }), true, 'an unknown size');
  const output: JobNeeds = { ...photo, outputFormat: 'jxl' };
  const encoding = { outputFormats: new Set(['jxl'] as const) };
  t.false(canDo(snapshot(encoding), output));
  t.true(canDo(snapshot({ ...encoding, jxlPixelsMax: 40_000_000 }), output));
});

test('hasRoomFor › counts a job by the larger of its image and its frame', t => {
  const image = { format: 'jpeg', width: 1000, height: 1000 } as const;
  const sizes: readonly [Finishing | null, number][] = [
    [null, 1],
    [{}, 1],
    [{ outputWidth: 100, outputHeight: 100 }, 1],
    [{ outputWidth: 10_000, outputHeight: 5000 }, 50],
    [{ outputWidth: 10_000, outputHeight: 5000, sizeMaxMegapixels: 4 }, 3.998792],
    [{ outputWidth: 3000 }, 9],
    [{ scalePercent: 50 }, 1],
    [{ scalePercent: 50, crop: NO_MARGINS }, 4],
    [{ scalePercent: 10, crop: NO_MARGINS }, 50],
    [{ crop: { ...NO_MARGINS, top: { px: 10_000 } } }, 10],
  ];
  for (const [finishing, megapixels] of sizes) {
    const needs = needsOf(image, { outputFormat: 'png', finishing });
    const most = needs.finishing?.frame.most ?? 0;
    t.is(Math.max(needs.pixels ?? 0, most) / 1e6, megapixels, JSON.stringify(finishing));
    const counted = admittedMegapixels(needs);
    const node = snapshot({ megapixelsFree: counted - 0.01 });
    t.false(hasRoomFor(node, needs));
    t.true(hasRoomFor({ ...node, megapixelsFree: counted }, needs));
  }
  const options = { outputFormat: 'png', finishing: { outputWidth: 10 } } as const;
  const { pixels } = needsOf({ ...image, width: null }, options);
  t.is(pixels, null);
});

test('hasRoomFor › counts an unknown size as the largest, and lets an idle node judge by itself', t => {
  const unknown = { ...photo, pixels: null };
  t.false(hasRoomFor(snapshot({ megapixelsFree: 99 }), unknown));
  t.true(hasRoomFor(snapshot({ megapixelsFree: 100 }), unknown));
  t.true(hasRoomFor(snapshot({ megapixelsFree: 60, imagesInFlight: 0 }), unknown));
});

test('hasRoomFor › has no room while every engine restarts', t => {
  t.false(hasRoomFor(snapshot({ enginesReady: 0, imagesInFlight: 0 }), photo));
});

const REPORT = { ...IDLE, imagesInFlight: 1, megapixelsFree: 16 };

const jobOf = (megapixels: number) =>
  needsOf({ format: 'jpeg', width: 1000, height: megapixels * 1000 }, { outputFormat: 'png' });

let view: NodeView;

test.beforeEach(() => {
  const bounds = { megapixelsAloneMax: 60, imagesMax: 5, megapixelsMax: 20 };
  view = new NodeView({ ...ABILITIES, ...bounds, engines: 4 });
  view.take(REPORT, 0);
  for (let done = 0; done < 5; done += 1) view.judge('well', 0);
});

function takes(megapixels: number): boolean {
  const snapshot = view.snapshot();
  assert.ok(snapshot);
  return hasRoomFor(snapshot, jobOf(megapixels));
}

function refuse(megapixels: number): void {
  view.end(view.reserve(admittedMegapixels(jobOf(megapixels))), 'for-its-size');
}

test('a node that refused › for want of memory gets smaller images at once, and no image as large before its next report', t => {
  refuse(6);
  t.deepEqual([takes(12), takes(6), takes(5)], [false, false, true]);
  refuse(2);
  t.deepEqual([takes(5), takes(2), takes(1)], [false, false, true]);
  refuse(4);
  t.is(takes(2), false, 'the least that it refused stands');
  view.take(REPORT, 1);
  t.truthy(takes(12));
});

test('a node that refused › gets nothing as large while it is idle either', t => {
  view.take({ ...REPORT, imagesInFlight: 0 }, 1);
  refuse(30);
  t.deepEqual([takes(30), takes(29)], [false, true]);
});

test('a node that refused › for want of a place gets nothing at all until it reports', t => {
  view.end(view.reserve(6), 'for-all');
  t.false(takes(1));
  view.take(REPORT, 1);
  t.truthy(takes(1));
});

test('a node that refused › has its room again once an attempt ends without a refusal', t => {
  view.end(view.reserve(6), undefined);
  t.truthy(takes(12));
});

type Outcome = 'well' | 'fault';

function after(outcomes: readonly Outcome[], from: NodeTrust = NEW_NODE, nowMs = 1): NodeTrust {
  return outcomes.reduce((trust, outcome) => judged(trust, outcome, nowMs), from);
}

const times = (count: number, outcome: Outcome) => Array<Outcome>(count).fill(outcome);

test('the trust in a node › is won by successes, and lost by faults in a row', t => {
  t.true(!isProven(after(times(PROVEN_SUCCESSES - 1, 'well'))));
  const proven = after(times(PROVEN_SUCCESSES, 'well'));
  t.truthy(isProven(proven));
  t.is(after(times(FAULTS_IN_A_ROW_MAX - 1, 'fault'), proven).ejectedUntilMs, 0);
  const ejected = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), proven);
  t.is(ejected.ejectedUntilMs, 1 + EJECTION_MS);
  t.true(!isProven(ejected), 'it comes back by slow start');
});

test('the trust in a node › is lost if half of many images fail, never by a few', t => {
  const mixed = Array.from({ length: 10 }, (_, index) =>
    index % 2 === 0 ? 'well' : 'fault',
  ) as Outcome[];
  t.is(after(mixed.slice(0, -1)).ejectedUntilMs, 0);
  t.true(after(mixed).ejectedUntilMs > 0);
});

test('the trust in a node › forgets faults with their window', t => {
  let trust = NEW_NODE;
  for (let round = 0; round < 40; round += 1) {
    trust = judged(trust, round % 2 === 0 ? 'well' : 'fault', 1 + round * 7500);
  }
  t.is(trust.ejectedUntilMs, 0);
});

test('the trust in a node › is lost for longer each time, up to a bound, and for as long as at first after a while', t => {
  let trust = NEW_NODE;
  let nowMs = 1;
  const lengths: number[] = [];
  for (let round = 0; round < 12; round += 1) {
    trust = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
    lengths.push(trust.ejectedUntilMs - nowMs);
    nowMs = trust.ejectedUntilMs;
  }
  t.deepEqual(
    lengths,
    lengths.map((_, index) => Math.min(EJECTION_MS_MAX, EJECTION_MS * (index + 1))),
  );
  nowMs += 3_600_000;
  const later = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
  t.is(later.ejectedUntilMs - nowMs, EJECTION_MS);
});

test('the trust in a node › never takes a node out that mostly does well, nor for longer than the bound', t => {
  const anyOutcomes = fc.array(fc.record({ well: fc.boolean(), afterMs: fc.nat(20_000) }), {
    maxLength: 200,
    size: 'max',
  });
  holds(t, [anyOutcomes], outcomes => {
    let trust = NEW_NODE;
    let nowMs = 1;
    let row = 0;
    for (const { well, afterMs } of outcomes) {
      nowMs += afterMs;
      const before = trust;
      trust = judged(trust, well ? 'well' : 'fault', nowMs);
      if (nowMs < before.ejectedUntilMs) {
        assert.equal(trust, before, 'what ends under an ejection adds nothing to it');
        continue;
      }
      row = well ? 0 : row + 1;
      const isOut = trust.ejectedUntilMs > nowMs;
      if (isOut) assert.ok(!well, 'a success ejects no node');
      assert.ok(trust.ejectedUntilMs <= nowMs + EJECTION_MS_MAX);
      if (row >= FAULTS_IN_A_ROW_MAX) assert.ok(isOut);
      if (isOut) row = 0;
    }
  });
});

const NODE: NodeAbility = {
  bootId: 'boot',
  inputFormats: new Set(['jpeg', 'png', 'jxl']),
  outputFormats: new Set(['png', 'webp', 'jxl', 'jpeg']),
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: 40_000_000,
  megapixelsAloneMax: 60,
};
const PHOTO = { format: 'jpeg', width: 4000, height: 3000 } as const;
const PNG = { outputFormat: 'png' } as const;
const px = (length: number) => {
  const side = { px: length };
  return { top: side, right: side, bottom: side, left: side };
};

function refused(
  options: ProcessingOptions,
  image: Parameters<typeof needsOf>[0] | undefined = PHOTO,
  nodes: readonly NodeAbility[] = [NODE],
): string | undefined {
  const refusal = fleetRefusalOf(nodes, needsOf(image, options));
  if (refusal === undefined) return undefined;
  assert.equal(refusal.retryable, false);
  const [error] = refusal.fieldErrors;
  return error === undefined ? refusal.code : `${refusal.code} ${error.field}`;
}

const JXL = { format: 'jxl', width: 7000, height: 7000 } as const;
const scene = { blob: 'b', bytes: 9, format: 'avif', width: 5000, height: 5000 } as const;
const picture = { kind: 'picture' } as const;
const cases: readonly [string, string, ProcessingOptions, Parameters<typeof refused>[1]][] = [
  ['an input format', 'UNSUPPORTED_IMAGE_FORMAT', PNG, { ...PHOTO, format: 'avif' }],
  ['a JPEG XL of 49 megapixels', 'IMAGE_RESOLUTION_TOO_LARGE', PNG, JXL],
  ['an output format', 'UNSUPPORTED_OUTPUT_FORMAT output_format', { outputFormat: 'avif' }, PHOTO],
  [
    'JPEG XL of a frame of 49 megapixels',
    'UNSUPPORTED_OUTPUT_FORMAT output_format',
    { outputFormat: 'jxl', finishing: { outputWidth: 7000, outputHeight: 7000 } },
    PHOTO,
  ],
  [
    'JPEG XL of a side of 9000',
    'UNSUPPORTED_OUTPUT_FORMAT output_format',
    { outputFormat: 'jxl', finishing: { outputHeight: 7000 } },
    { ...PHOTO, width: 10, height: 10 },
  ],
  [
    'more memory than there is',
    'IMAGE_RESOLUTION_TOO_LARGE',
    PNG,
    { ...PHOTO, width: 9000, height: 9000 },
  ],
];
for (const [name, code, options, image] of cases) {
  test(`a request that no node can serve › is refused with ${code}: ${name}`, t =>
    t.is(refused(options, image), code));
}

test('a request that no node can serve › names the field whose frame or background needs too much memory', t => {
  const reads = new Set(['jpeg', 'avif'] as const);
  const small = { ...NODE, inputFormats: reads, megapixelsAloneMax: 12 };
  const options = { ...PNG, finishing: { background: picture }, background: { input: scene } };
  const image = { ...PHOTO, width: 30, height: 20 };
  t.is(refused(options, image, [small]), 'INVALID_PARAMETER background');
  const wide = { outputFormat: 'webp', finishing: { crop: px(3000) } } as const;
  t.is(refused(wide, image, [small]), 'INVALID_PARAMETER crop_margin');
  t.is(refused({ ...options, background: null }, image, [small]), undefined);
});

test('a request that no node can serve › names the field of hints if all nodes have an earlier version', t => {
  const box = { left: { px: 1 }, top: { px: 1 }, right: { px: 9 }, bottom: { px: 9 } };
  const shapes = [{ box: [0, 0, 1, 1] as const }];
  for (const [hints, field] of [
    [{ subjectBox: box, keep: shapes }, 'subject_box'],
    [{ keep: shapes, erase: shapes }, 'keep'],
    [{ erase: shapes }, 'erase'],
    [{ picture: true as const }, 'hints_file'],
  ] as const) {
    t.is(refused({ ...PNG, hints }), `INVALID_PARAMETER ${field}`);
    const newer = { ...NODE, capabilities: new Set(CAPABILITIES) };
    t.is(refused({ ...PNG, hints }, PHOTO, [newer]), undefined);
  }
});

test('a request that no node can serve › names hints_file if the file needs too much memory', t => {
  const newer = { ...NODE, capabilities: new Set(CAPABILITIES), megapixelsAloneMax: 6 };
  const image = { ...PHOTO, width: 30, height: 20 };
  const hintsFile = { format: 'png', width: 5000, height: 5000 } as const;
  const options = { ...PNG, hints: { picture: true as const } };
  t.is(refused(options, image, [newer]), undefined);
  t.is(refused({ ...options, hintsFile }, image, [newer]), 'INVALID_PARAMETER hints_file');
});

test('a request that no node can serve › is refused if no node reads the format of the background', t => {
  const options = { ...PNG, finishing: { background: picture }, background: { input: scene } };
  t.is(refused(options), 'UNSUPPORTED_IMAGE_FORMAT');
  const jxlScene = { ...scene, format: 'jxl' } as const;
  const withJxl = { ...options, background: { input: jxlScene } };
  t.is(refused(withJxl), undefined);
  const less = { ...NODE, jxlPixelsMax: 20_000_000 };
  t.is(refused(withJxl, PHOTO, [less]), 'UNSUPPORTED_IMAGE_FORMAT');
  const withHeic = { ...options, background: { input: { ...scene, format: 'heic' } as const } };
  t.regex(
    fleetRefusalOf([NODE], needsOf(PHOTO, withHeic))?.message ?? '',
    /^background: .*MATTING_HEIF/,
  );
});

test('a request that no node can serve › gets the refusal of the node that comes nearest, and none if one node can', t => {
  const reader = { ...NODE, bootId: 'a', inputFormats: new Set(['avif'] as const) };
  const avif = { ...PHOTO, format: 'avif' } as const;
  const toJpeg = { outputFormat: 'avif' } as const;
  t.is(refused(toJpeg, avif, [NODE, reader]), 'UNSUPPORTED_OUTPUT_FORMAT output_format');
  t.is(refused(PNG, avif, [NODE, reader]), undefined);
  t.is(refused(PNG, avif, []), undefined, 'none to ask');
});

test('a request that no node can serve › names a field that nodes of another version do not follow', t => {
  const square = { aspectRatio: { width: 1, height: 1 } };
  const options = { outputFormat: 'png', finishing: { ...square, enlarge: false } } as const;
  const some = { ...NODE, capabilities: new Set(['finishing.aspect_ratio']) };
  const all = { ...NODE, capabilities: new Set(['finishing.aspect_ratio', 'finishing.enlarge']) };
  t.is(refused(options, PHOTO, [NODE]), 'INVALID_PARAMETER aspect_ratio');
  t.is(refused(options, PHOTO, [some]), 'INVALID_PARAMETER enlarge');
  t.is(refused(options, PHOTO, [NODE, some, all]), undefined);
  t.deepEqual(
    [some, all].map(node => canDo(node, needsOf(PHOTO, options))),
    [false, true],
  );
  t.is(fleetRefusalOf([NODE], needsBeforeImage(options))?.fieldErrors[0]?.field, 'aspect_ratio');
});

test('a request that no node can serve › is refused by its fields alone before the image arrives', t => {
  const nothing = { ...NODE, inputFormats: new Set<never>(), megapixelsAloneMax: 1 };
  t.is(fleetRefusalOf([nothing], needsBeforeImage(PNG)), undefined);
  const jxlFrame = { outputFormat: 'jxl', finishing: { outputHeight: 9000 } } as const;
  t.is(fleetRefusalOf([nothing], needsBeforeImage(jxlFrame)), undefined);
  const avif = fleetRefusalOf([nothing], needsBeforeImage({ outputFormat: 'avif' }));
  t.is(avif?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
});

test('a request that no node can serve › is refused by its format once every node that lists it refused', t => {
  const all = new Set(['boot']);
  const cmyk = needsOf({ ...JXL, width: 10, height: 10 }, PNG);
  const readers = [{ ...NODE, inputFormats: new Set(['jxl', 'heic'] as const) }];
  const heic = needsOf({ ...PHOTO, format: 'heic' }, PNG);
  for (const needs of [cmyk, heic]) {
    t.is(fleetRefusalOf(readers, needs, all)?.code, 'UNSUPPORTED_IMAGE_FORMAT');
  }
  const toJxl = needsOf(PHOTO, { outputFormat: 'jxl' });
  t.is(fleetRefusalOf([NODE], toJxl, all)?.code, 'UNSUPPORTED_OUTPUT_FORMAT');
  t.is(fleetRefusalOf([NODE], needsOf(PHOTO, PNG), all), undefined, 'the nodes are at fault');
  t.is(fleetRefusalOf([NODE, { ...NODE, bootId: 'other' }], toJxl, all), undefined);
});

const GRACE_MS = 6000;
let nowMs: number;
let routable: NodeAbility[];
let advertised: AdvertisedNodes;

const prepare = () => {
  nowMs = 0;
  routable = [NODE];
  advertised = new AdvertisedNodes({
    routable: () => routable,
    graceMs: GRACE_MS,
    now: () => nowMs,
  });
};

test('the advertised nodes › are unknown within the first grace period', async t => {
  await prepare();
  nowMs = GRACE_MS;
  t.is(advertised.nodes(), undefined);
  nowMs += 1;
  t.deepEqual(advertised.nodes(), [NODE]);
});

test('the advertised nodes › are those that were there within the grace period, and no others', async t => {
  await prepare();
  const other = { ...NODE, bootId: 'other' };
  nowMs = 2 * GRACE_MS;
  advertised.changed();
  routable = [other];
  nowMs += GRACE_MS;
  t.deepEqual(advertised.nodes(), [NODE, other]);
  nowMs += 1;
  t.deepEqual(advertised.nodes(), [other]);
  routable = [];
  nowMs += GRACE_MS + 1;
  t.deepEqual(advertised.nodes(), []);
});

test('the advertised nodes › are read often enough, even if they report often', async t => {
  await prepare();
  nowMs = 2 * GRACE_MS;
  advertised.changed();
  let looks = 0;
  const counting = new AdvertisedNodes({
    routable: () => {
      looks += 1;
      return [];
    },
    graceMs: GRACE_MS,
    now: () => nowMs,
  });
  for (let report = 0; report < 1000; report += 1) {
    nowMs += 1;
    counting.changed();
  }
  t.is(looks, 10);
});
