/** The policy by its properties: whatever the fleet and the queue look like. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  canDo,
  expectedWaitMs,
  FULL_SCAN_NODES_MAX,
  hasRoom,
  type JobNeeds,
  type NodeSnapshot,
  pickNode,
} from '../../src/domain/dispatch-policy.ts';

function snapshot(changes: Partial<NodeSnapshot> = {}): NodeSnapshot {
  return {
    nodeId: 'node',
    bootId: 'boot',
    inputFormats: new Set(['jpeg', 'png']),
    outputFormats: new Set(['png', 'webp']),
    imagePixelsMax: 100_000_000,
    jxlPixelsMax: 0,
    imagesFree: 2,
    megapixelsFree: 100,
    idle: false,
    engines: 1,
    enginesReady: 1,
    estimatedWaitMs: 0,
    inferMs: 100,
    unreportedImages: 0,
    ...changes,
  };
}

const photo: JobNeeds = { inputFormat: 'jpeg', pixels: 12_000_000, outputFormat: 'png' };

const anySnapshot = fc
  .record({
    imagesFree: fc.integer({ min: -1, max: 3 }),
    megapixelsFree: fc.constantFrom(0, 5, 12, 200),
    idle: fc.boolean(),
    enginesReady: fc.integer({ min: 0, max: 2 }),
    estimatedWaitMs: fc.integer({ min: 0, max: 5000 }),
    unreportedImages: fc.integer({ min: 0, max: 3 }),
    inputFormats: fc.constantFrom(new Set(['jpeg'] as const), new Set(['png'] as const)),
  })
  .map(changes => snapshot(changes));

const anyFleet = fc
  .array(anySnapshot, { maxLength: 40 })
  .map(nodes =>
    nodes.map((node, index) => ({ ...node, nodeId: `node-${index}`, bootId: `boot-${index}` })),
  );

const anyRandom = fc
  .array(fc.double({ min: 0, max: 0.999_999, noNaN: true }), { minLength: 1, maxLength: 9 })
  .map(values => {
    let next = 0;
    return () => values[next++ % values.length];
  });

const someNames = (prefix: string) =>
  fc.uniqueArray(fc.integer({ min: 0, max: 39 }), { maxLength: 10 }).map(indices => {
    return new Set(indices.map(index => `${prefix}-${index}`));
  });

describe('pickNode', () => {
  it('picks only a node that can do it, has room and did not refuse it', () => {
    fc.assert(
      fc.property(anyFleet, anyRandom, someNames('boot'), (fleet, random, excludedBoots) => {
        const choice = pickNode(fleet, photo, { random, excludedBoots });
        if (choice.kind !== 'picked') return;
        assert.ok(canDo(choice.node, photo) && hasRoom(choice.node, photo));
        assert.ok(!excludedBoots.has(choice.node.bootId));
      }),
    );
  });

  it('says why there is none', () => {
    fc.assert(
      fc.property(anyFleet, anyRandom, someNames('boot'), (fleet, random, excludedBoots) => {
        const capable = fleet.filter(node => !excludedBoots.has(node.bootId) && canDo(node, photo));
        const { kind } = pickNode(fleet, photo, { random, excludedBoots });
        assert.equal(kind === 'no-nodes', fleet.length === 0);
        assert.equal(kind === 'incapable', fleet.length > 0 && capable.length === 0);
        const free = capable.some(node => hasRoom(node, photo));
        assert.equal(kind === 'busy', capable.length > 0 && !free);
      }),
    );
  });

  it('goes back to an avoided node only where no other capable one is routable', () => {
    fc.assert(
      fc.property(anyFleet, anyRandom, someNames('node'), (fleet, random, avoidedNodes) => {
        const choice = pickNode(fleet, photo, { random, avoidedNodes });
        if (choice.kind !== 'picked' || !avoidedNodes.has(choice.node.nodeId)) return;
        const others = fleet.filter(node => !avoidedNodes.has(node.nodeId) && canDo(node, photo));
        assert.deepEqual(others, []);
      }),
    );
  });

  it('takes the shortest wait of all in a small fleet', () => {
    fc.assert(
      fc.property(anyFleet, anyRandom, (fleet, random) => {
        const small = fleet.slice(0, FULL_SCAN_NODES_MAX);
        const choice = pickNode(small, photo, { random });
        if (choice.kind !== 'picked') return;
        const waits = small
          .filter(node => canDo(node, photo) && hasRoom(node, photo))
          .map(expectedWaitMs);
        assert.equal(expectedWaitMs(choice.node), Math.min(...waits));
      }),
    );
  });

  it('in a large fleet never takes the worst, and reaches every other node', () => {
    const fleet = Array.from({ length: 30 }, (_, index) =>
      snapshot({ nodeId: `node-${index}`, bootId: `boot-${index}`, estimatedWaitMs: index }),
    );
    let seed = 1;
    const random = () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    const picked = new Set<string>();
    for (let pick = 0; pick < 3000; pick += 1) {
      const choice = pickNode(fleet, photo, { random });
      assert.equal(choice.kind, 'picked');
      if (choice.kind === 'picked') picked.add(choice.node.nodeId);
    }
    assert.ok(!picked.has('node-29'));
    assert.equal(picked.size, 29);
  });

  it('counts what it has started since the last report', () => {
    const fleet = [
      snapshot({ nodeId: 'a', estimatedWaitMs: 0, unreportedImages: 2 }),
      snapshot({ nodeId: 'b', estimatedWaitMs: 150 }),
    ];
    const choice = pickNode(fleet, photo, { random: () => 0 });
    assert.equal(choice.kind === 'picked' && choice.node.nodeId, 'b');
  });
});

describe('canDo', () => {
  const jxl: JobNeeds = { inputFormat: 'jxl', pixels: 50_000_000, outputFormat: 'png' };
  const decoding = new Set(['jxl', 'jpeg'] as const);

  it('keeps JPEG XL off nodes without it, and large ones off those with a bound', () => {
    assert.equal(canDo(snapshot({ inputFormats: decoding }), jxl), false);
    const small = snapshot({ inputFormats: decoding, jxlPixelsMax: 40_000_000 });
    assert.equal(canDo(small, jxl), false);
    assert.equal(canDo(small, { ...jxl, pixels: 30_000_000 }), true);
    assert.equal(canDo(small, { ...jxl, pixels: null }), true, 'a size nobody knows');
    const output: JobNeeds = { ...photo, outputFormat: 'jxl' };
    const encoding = { outputFormats: new Set(['jxl'] as const) };
    assert.equal(canDo(snapshot(encoding), output), false);
    assert.equal(canDo(snapshot({ ...encoding, jxlPixelsMax: 40_000_000 }), output), true);
  });
});

describe('hasRoom', () => {
  it('counts an unknown size as the largest, and lets an idle node judge by itself', () => {
    const unknown = { ...photo, pixels: null };
    assert.equal(hasRoom(snapshot({ megapixelsFree: 99 }), unknown), false);
    assert.equal(hasRoom(snapshot({ megapixelsFree: 100 }), unknown), true);
    assert.equal(hasRoom(snapshot({ megapixelsFree: 60, idle: true }), unknown), true);
  });

  it('sends nothing where every engine is restarting', () => {
    assert.equal(hasRoom(snapshot({ enginesReady: 0, idle: true }), photo), false);
  });
});
