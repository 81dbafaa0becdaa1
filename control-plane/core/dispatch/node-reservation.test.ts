import { snapshotWith } from '@matting/nodes/test/nodes-seen.ts';
import test from 'ava';
import { NodeReservation } from './node-reservation.ts';

const PAUSE_MS = 10_000;
const RESERVED_MS_MAX = 30_000;
const RESERVE_AFTER_MS = 10_000;

function waiting(jobId: string, megapixels: number, waitedMs = RESERVE_AFTER_MS) {
  const pixels = megapixels * 1e6;
  const needs = { inputFormat: 'png', pixels, outputFormat: 'png' } as const;
  return { jobId, waitedMs, needs, excludedBoots: undefined };
}

const SMALL = waiting('small', 1, 0);
const LARGE = waiting('large', 12);
const BUSY = snapshotWith({ imagesInFlight: 1, imagesFree: 2, megapixelsFree: 11 });
const IDLE = snapshotWith({ nodeId: 'other', megapixelsFree: 12 });

function open(reservation: NodeReservation, jobId: string, ...nodes: (typeof BUSY)[]): string[] {
  return reservation.nodesFor(jobId, nodes).map(({ nodeId }) => nodeId);
}

test('an image that has waited for memory has the node for itself, until it begins', t => {
  const reservation = new NodeReservation();
  reservation.reserve([waiting('large', 12, RESERVE_AFTER_MS - 1), SMALL], [BUSY], 0);
  t.deepEqual(open(reservation, 'small', BUSY), ['node'], 'it has not waited for long');
  reservation.reserve([SMALL, LARGE], [BUSY], 1);
  t.deepEqual(open(reservation, 'small', BUSY, IDLE), ['other']);
  t.deepEqual(open(reservation, 'large', BUSY, IDLE), ['node', 'other']);
  reservation.began('small', 2);
  t.deepEqual(open(reservation, 'small', BUSY), []);
  reservation.began('large', 2);
  t.deepEqual(open(reservation, 'small', BUSY), ['node']);
  // Others get the node before the next large image.
  reservation.reserve([SMALL, LARGE], [BUSY], 1 + PAUSE_MS);
  t.deepEqual(open(reservation, 'small', BUSY), ['node']);
  reservation.reserve([SMALL, LARGE], [BUSY], 2 + PAUSE_MS);
  t.deepEqual(open(reservation, 'small', BUSY), []);
});

test('a reservation ends with its job, and with its time', t => {
  for (const [jobs, atMs] of [
    [[SMALL], 1],
    [[SMALL, LARGE], RESERVED_MS_MAX],
  ] as const) {
    const reservation = new NodeReservation();
    reservation.reserve([SMALL, LARGE], [BUSY], 0);
    reservation.reserve([SMALL, LARGE], [BUSY], RESERVED_MS_MAX - 1);
    t.deepEqual(open(reservation, 'small', BUSY), []);
    reservation.reserve(jobs, [BUSY], Math.max(atMs, RESERVED_MS_MAX - 1));
    t.deepEqual(open(reservation, 'small', BUSY), ['node']);
  }
});

test('no node is reserved in vain', t => {
  for (const [why, jobs, nodes] of [
    ['another node has room', [SMALL, LARGE], [BUSY, IDLE]],
    [
      'no node could ever have it',
      [SMALL, waiting('huge', 12)],
      [{ ...BUSY, megapixelsAloneMax: 9 }],
    ],
    ['its engines are gone', [SMALL, LARGE], [{ ...BUSY, enginesReady: 0 }]],
    ['nobody would come before it', [LARGE], [BUSY]],
    [
      'only jobs of another model wait beside it',
      [{ ...SMALL, needs: { ...SMALL.needs, model: 'heavy' } }, LARGE],
      [BUSY],
    ],
    [
      'it lacks slots, not memory',
      [SMALL, LARGE],
      [{ ...BUSY, imagesFree: 0, megapixelsFree: 12 }],
    ],
  ] as const) {
    const reservation = new NodeReservation();
    reservation.reserve(jobs, nodes, 0);
    t.is(reservation.nodesFor('small', nodes).length, nodes.length, why);
  }
});

test('every replica keeps the same node', t => {
  const nodes = ['c', 'a', 'b'].map(nodeId => ({ ...BUSY, nodeId }));
  for (const seen of [nodes, nodes.toReversed()]) {
    const reservation = new NodeReservation();
    reservation.reserve([SMALL, LARGE], seen, 0);
    t.deepEqual(open(reservation, 'small', ...seen).toSorted(), ['b', 'c']);
  }
});
