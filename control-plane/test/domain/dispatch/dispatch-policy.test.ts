/** The policy by its properties: whatever the fleet and the queue look like. */
import assert from 'node:assert/strict';
import test from 'ava';
import type { Finishing } from '#contract/finishing.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import {
  expectedWaitMs,
  FULL_SCAN_NODES_MAX,
  hasPlace,
  isIncapable,
  LEAD_MS,
  type NodeSnapshot,
  pickNode,
  waitMsMax,
  workMs,
} from '../../../src/domain/dispatch/dispatch-policy.ts';
import {
  admittedMegapixels,
  canDo,
  type JobNeeds,
  megapixelsOf,
  needsOf,
} from '../../../src/domain/dispatch/job-needs.ts';
import { snapshotWith } from './nodes-seen.ts';

const snapshot = (changes: Partial<NodeSnapshot> = {}) =>
  snapshotWith({ imagesFree: 2, megapixelsFree: 100, imagesInFlight: 1, ...changes });

const NO_MARGINS = { top: { px: 0 }, right: { px: 0 }, bottom: { px: 0 }, left: { px: 0 } };
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

/** A generator with a period beyond any test. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

const mayTake = (node: NodeSnapshot) =>
  canDo(node, photo) && hasPlace(node, photo) && expectedWaitMs(node, NOW_MS) <= waitMsMax(0);

test('pickNode › picks only a node that can do it, would take it soon and did not refuse it', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyFleet, anyRandom, someBoots, (fleet, random, excludedBoots) => {
        const choice = pickNode(fleet, photo, { ...now, random, excludedBoots });
        if (choice.kind !== 'picked') return;
        assert.ok(mayTake(choice.node));
        assert.ok(!excludedBoots.has(choice.node.bootId));
        assert.equal(choice.waitMsMax, waitMsMax(0));
      }),
    ),
  );
});

test('pickNode › says why there is none', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyFleet, anyRandom, someBoots, (fleet, random, excludedBoots) => {
        const capable = fleet.filter(node => !excludedBoots.has(node.bootId) && canDo(node, photo));
        const { kind } = pickNode(fleet, photo, { ...now, random, excludedBoots });
        assert.equal(kind === 'no-nodes', fleet.length === 0);
        assert.equal(kind === 'incapable', fleet.length > 0 && capable.length === 0);
        assert.equal(kind === 'incapable', isIncapable(fleet, photo, excludedBoots));
        const good = capable.filter(node => node.ejectedUntilMs <= NOW_MS);
        // An ejected node alone may be left out, or taken where half of the fleet is ejected.
        if (capable.length > 0 && !capable.some(mayTake)) assert.equal(kind, 'busy');
        if (good.some(mayTake)) assert.equal(kind, 'picked');
      }),
    ),
  );
});

test('pickNode › says when time alone makes room, and has it then', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyFleet, anyRandom, (fleet, random) => {
        const choice = pickNode(fleet, photo, { ...now, random });
        if (choice.kind !== 'busy') return;
        const { retryInMs } = choice;
        const places = fleet.some(node => canDo(node, photo) && hasPlace(node, photo));
        if (!places) assert.equal(retryInMs, undefined);
        if (retryInMs === undefined) return;
        assert.ok(retryInMs > 0);
        const later = { ...now, nowMs: NOW_MS + Math.ceil(retryInMs), random };
        const thenOut = fleet.some(node => node.ejectedUntilMs > NOW_MS);
        // Between reports only the wait shrinks: own images on their way stay in front.
        const owed = fleet.some(node => node.unreportedImages > 0);
        if (!thenOut && !owed) assert.equal(pickNode(fleet, photo, later).kind, 'picked');
      }),
    ),
  );
});

/** All nodes but a few: of fewer, one that is not avoided is nearly always there. */
const nearlyAllNodes = fc.uniqueArray(fc.nat(39), { maxLength: 3 }).map(others => {
  const indices = Array.from({ length: 40 }, (_, index) => index);
  return new Set(indices.filter(each => !others.includes(each)).map(each => `node-${each}`));
});

test('pickNode › goes back to an avoided node only where no other good one is routable', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyFleet, anyRandom, nearlyAllNodes, (fleet, random, avoidedNodes) => {
        const choice = pickNode(fleet, photo, { ...now, random, avoidedNodes });
        if (choice.kind !== 'picked' || !avoidedNodes.has(choice.node.nodeId)) return;
        const others = fleet.filter(
          node =>
            !avoidedNodes.has(node.nodeId) && canDo(node, photo) && node.ejectedUntilMs <= NOW_MS,
        );
        assert.deepEqual(others, []);
      }),
    ),
  );
});

test('pickNode › takes the first to finish in a small fleet, of those with a free engine if there are', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyFleet, anyRandom, (fleet, random) => {
        const small = fleet
          .slice(0, FULL_SCAN_NODES_MAX)
          .map(node => ({ ...node, ejectedUntilMs: 0 }));
        const choice = pickNode(small, photo, { ...now, random });
        if (choice.kind !== 'picked') return;
        const finishMs = (node: NodeSnapshot) => expectedWaitMs(node, NOW_MS) + workMs(node, photo);
        const free = small.filter(mayTake);
        const idle = free.filter(node => node.imagesInFlight < node.enginesReady);
        const compared = idle.length > 0 ? idle : free;
        assert.equal(finishMs(choice.node), Math.min(...compared.map(finishMs)));
      }),
    ),
  );
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

test('pickNode › counts what it has started since the last report', t => {
  const fleet = [
    snapshot({ nodeId: 'a', estimatedWaitMs: 0, unreportedImages: 2, imagesInFlight: 3 }),
    snapshot({ nodeId: 'b', estimatedWaitMs: 50 + NOW_MS }),
  ];
  const choice = pickNode(fleet, photo, { ...now, random: () => 0 });
  t.is(choice.kind === 'picked' && choice.node.nodeId, 'b');
});

test('pickNode › lets a job that has waited long wait longer on a node', t => {
  const fleet = [snapshot({ estimatedWaitMs: NOW_MS + LEAD_MS + 500 })];
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
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), fc.nat(20), (count, some) => {
        const ejected = Math.min(some, count);
        const picked = pickedOf(fleetOf(count, ejected), NOW_MS);
        const out = Math.min(ejected, Math.floor(count / 2));
        for (let index = 0; index < count; index += 1) {
          const isOut = index < ejected && index >= ejected - out;
          assert.equal(picked.has(`node-${index}`), !isOut, `node-${index} of ${count}`);
        }
      }),
      { numRuns: 25 },
    ),
  );
});

test('ejected nodes › are back when their time is over', t => {
  t.is(pickedOf(fleetOf(4, 2), NOW_MS + 3).size, 4);
});

test('ejected nodes › are taken where they alone can do the job', t => {
  const fleet = fleetOf(4, 1).map((node, index) =>
    index === 0 ? node : { ...node, outputFormats: new Set(['webp'] as const) },
  );
  t.deepEqual([...pickedOf(fleet, NOW_MS)], ['node-0']);
});

test('slow start › gives a new node an image an engine until it has proved itself', t => {
  const fresh = { proven: false, enginesReady: 2 };
  t.truthy(hasPlace(snapshot({ ...fresh, ownImages: 1 }), photo));
  t.true(!hasPlace(snapshot({ ...fresh, ownImages: 2 }), photo));
  t.truthy(hasPlace(snapshot({ ...fresh, proven: true, ownImages: 2 }), photo));
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

test('hasPlace › counts a job by the larger of its image and its frame', t => {
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
    t.is(megapixelsOf(needs), megapixels, JSON.stringify(finishing));
    const counted = admittedMegapixels(needs);
    const node = snapshot({ megapixelsFree: counted - 0.01 });
    t.false(hasPlace(node, needs));
    t.true(hasPlace({ ...node, megapixelsFree: counted }, needs));
  }
  const asked = { outputFormat: 'png', finishing: { outputWidth: 10 } } as const;
  const { pixels } = needsOf({ ...image, width: null }, asked);
  t.is(pixels, null);
});

test('hasPlace › counts an unknown size as the largest, and lets an idle node judge by itself', t => {
  const unknown = { ...photo, pixels: null };
  t.false(hasPlace(snapshot({ megapixelsFree: 99 }), unknown));
  t.true(hasPlace(snapshot({ megapixelsFree: 100 }), unknown));
  t.true(hasPlace(snapshot({ megapixelsFree: 60, imagesInFlight: 0 }), unknown));
});

test('hasPlace › sends nothing where every engine is restarting', t => {
  t.false(hasPlace(snapshot({ enginesReady: 0, imagesInFlight: 0 }), photo));
});
