/** What a dispatcher decides in its rounds: nodes as NodeView has them, a table in memory. */
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { OutputFormat } from '#contract/formats.ts';
import {
  DispatchCore,
  LIST_MAX,
  type QueuedJob,
  type Step,
} from '../../../src/domain/dispatch/dispatch-core.ts';
import {
  type JobLane,
  LANES_MAX,
  queuePositionMs,
} from '../../../src/domain/dispatch/job-turns.ts';
import { NodeView, type Reservation } from '../../../src/domain/dispatch/node-view.ts';
import { FIRST_ADMISSION_MS_MAX } from '../../../src/domain/lease.ts';
import { ABILITIES, REPORT } from './nodes-seen.ts';

const GRACE_MS = 1000;
const FAILURE = { code: 'PROCESSING_FAILED', detail: 'a detail', retryable: true } as const;

let nowMs: number;
/** Undefined: no node. */
let node: NodeView | undefined;
let downloadsFree: number;
let fullHosts: string[];
let core: DispatchCore<QueuedJob, Reservation, string>;

/** A node with free engines that is trusted. */
function freeNode(engines = 1, output: OutputFormat = 'png'): NodeView {
  const bounds = { jxlPixelsMax: 100_000_000, megapixelsAloneMax: 400 };
  const view = new NodeView({
    ...{ ...ABILITIES, ...bounds, engines },
    outputFormats: new Set([output]),
  });
  view.take({ ...REPORT, enginesReady: engines }, nowMs);
  for (let done = 0; done < 5; done++) view.judge('well', nowMs);
  return view;
}

function coreWith(graceMs: number | undefined): typeof core {
  return new DispatchCore<QueuedJob, Reservation, string>({
    room: {
      snapshots: () => [node?.snapshot()].filter(snapshot => snapshot !== undefined),
      offer: (_node, megapixels) => node?.reserve(megapixels),
      downloads: {
        hasRoom: ({ sourceHost }) => downloadsFree > 0 && !fullHosts.includes(sourceHost ?? ''),
        hasRoomFor: () => downloadsFree > 0,
        fullHosts: () => fullHosts,
        begin: ({ id }) => (downloadsFree-- > 0 ? `download of ${id}` : undefined),
      },
    },
    noNodeGraceMs: graceMs,
    random: () => 0.5,
    now: () => nowMs,
  });
}

beforeEach(() => {
  nowMs = 0;
  downloadsFree = 1;
  fullHosts = [];
  node = freeNode();
  core = coreWith(GRACE_MS);
});

let jobs = 0;

function job(changes: Partial<QueuedJob> = {}): QueuedJob {
  jobs += 1;
  return {
    id: `job-${jobs}`,
    state: 'ready',
    class: 'sync',
    accountId: 'a',
    apiKeyId: 'a-1',
    createdAtMs: nowMs,
    readAtMs: nowMs,
    startedAtMs: null,
    takeovers: 0,
    input: { format: 'png', width: 1000, height: 1000 },
    sourceHost: null,
    outputFormat: 'png',
    ...changes,
  };
}

const download = (changes: Partial<QueuedJob> = {}) =>
  job({ input: null, sourceHost: 'host', state: 'accepted', ...changes });

function laneOf(one: QueuedJob): JobLane {
  const { accountId, apiKeyId, createdAtMs, readAtMs } = one;
  const firstQueueAtMs = queuePositionMs(one.class, createdAtMs);
  const lane = { needsDownload: one.input === null, class: one.class, accountId, apiKeyId };
  return { ...lane, firstQueueAtMs, readAtMs };
}

/** A round over a table that holds these; undefined: none is needed. */
function round(...table: QueuedJob[]): Step<QueuedJob, Reservation, string> | undefined {
  if (!core.beginRound()) return undefined;
  if (core.lanesOutdated) core.lanesRead(table.map(laneOf));
  const chosen = core.chooseLanes();
  return core.place(chosen, table.slice(0, LIST_MAX));
}

/** What is begun, as `<id> <kind>`. */
function begun(step: Step<QueuedJob, unknown, unknown> | undefined): string[] | undefined {
  return step?.placed.map(({ job: { id }, placement }) => `${id} ${placement.kind}`);
}

/** The node reports that it works on one image and takes no other for that long. */
function occupy(estimatedWaitMs: number): void {
  node?.take({ ...REPORT, imagesInFlight: 1, estimatedWaitMs }, nowMs);
}

describe('a job that is submitted', () => {
  it('is placed at once where no job waits before it', () => {
    const one = job();
    assert.deepEqual(begun(core.submitted(one)), [`${one.id} node`]);
    assert.equal(node?.snapshot()?.ownImages, 1, 'its room is taken');
  });

  it('waits behind those that wait, and costs a round only where there is room', () => {
    occupy(500);
    round();
    const first = core.submitted(job());
    assert.deepEqual([first.placed, first.wakeInMs], [[], 450], 'until it would be taken');
    assert.deepEqual(core.submitted(job()), { placed: [], wakeInMs: 0 });
    node = undefined;
    assert.deepEqual(core.submitted(job()), { placed: [], wakeInMs: undefined });
  });

  it('downloads at once where there is a place, and wakes a round only where there is one', () => {
    round();
    const one = download();
    assert.deepEqual(begun(core.submitted(one)), [`${one.id} download`]);
    assert.deepEqual(core.submitted(download()), { placed: [], wakeInMs: undefined });
    assert.deepEqual(core.submitted(download()), { placed: [], wakeInMs: undefined });
    downloadsFree = 1;
    assert.deepEqual(core.submitted(download()), { placed: [], wakeInMs: 0 });
    assert.ok(core.beginRound());
  });
});

describe('a round', () => {
  it('is needed at first, and then only for a cause', () => {
    assert.notEqual(round(), undefined);
    assert.equal(round(), undefined);
    core.outdate();
    assert.notEqual(round(), undefined);
    core.downloadEnded();
    assert.notEqual(round(), undefined);
    assert.equal(round(), undefined);
  });

  it('places what an engine would take about when it arrives, and knows that the rest waits', () => {
    const many = Array.from({ length: 5 }, () => job());
    const other = job({ accountId: 'b', apiKeyId: 'b-1' });
    assert.deepEqual(begun(round(...many, other)), [`${many[0]?.id} node`]);
    assert.equal(core.nodesAwaited, true);
    assert.equal(core.roomChanged('ended'), 0);
    assert.equal(core.roomChanged('reported'), 10);
  });

  it('counts what already runs when turns are made', () => {
    const [first, second] = [job(), job()];
    const other = job({ accountId: 'b', apiKeyId: 'b-1' });
    core.submitted(first);
    node = freeNode();
    const step = round(first, second, other);
    assert.equal(begun(step)?.[0], `${other.id} node`);
  });

  it('places nothing twice', () => {
    const one = job();
    core.submitted(one);
    node = freeNode();
    core.outdate();
    assert.deepEqual(begun(round(one)), []);
  });

  it('leaves a report without consequence where no job waits', () => {
    round();
    assert.equal(core.roomChanged('reported'), undefined);
  });

  it('ends what is due to fail', () => {
    const doomed = job({ takeovers: 10 });
    const step = round(doomed);
    assert.deepEqual(begun(step), [`${doomed.id} failure`]);
  });

  it('ends a job that no routable node can do once the grace is over', () => {
    const odd = job({ input: { format: 'avif', width: 10, height: 10 } });
    assert.deepEqual(begun(round(odd)), []);
    nowMs += GRACE_MS;
    core.outdate();
    assert.deepEqual(begun(round(odd)), [], 'the grace itself is waited');
    nowMs += 1;
    core.outdate();
    assert.deepEqual(begun(round(odd)), [`${odd.id} failure`]);
  });

  it('leaves downloads without a place, and jobs of full hosts, to a later one', () => {
    fullHosts = ['slow'];
    const [fast, more] = [download(), download()];
    core.outdate();
    assert.ok(core.beginRound());
    core.lanesRead([laneOf(fast)]);
    const chosen = core.chooseLanes();
    assert.deepEqual(
      chosen.lanes.map(({ exceptHosts }) => exceptHosts),
      [['slow']],
    );
    assert.deepEqual(begun(core.place(chosen, [fast, more])), [`${fast.id} download`]);
    core.outdate();
    assert.ok(core.beginRound());
    assert.deepEqual(core.chooseLanes(), { lanes: [], all: true }, 'no place for any');
  });

  it('reads further lanes at once where those it read were empty', () => {
    const many = Array.from({ length: LANES_MAX + 1 }, (_, at) => job({ apiKeyId: `a-${at}` }));
    assert.ok(core.beginRound());
    core.lanesRead(many.map(laneOf));
    const chosen = core.chooseLanes();
    assert.deepEqual([chosen.lanes.length, chosen.all], [LANES_MAX, false]);
    assert.deepEqual(core.place(chosen, []), { placed: [], wakeInMs: 0 });
    assert.ok(core.beginRound());
    assert.deepEqual([core.chooseLanes().lanes.length, core.chooseLanes().all], [1, true]);
  });

  it('does not forget while it is under way that jobs waited before it', () => {
    occupy(500);
    round(job());
    node?.take(REPORT, nowMs);
    assert.ok(core.beginRound());
    assert.equal(core.nodesAwaited, true);
    const chosen = core.chooseLanes();
    core.place(chosen, []);
    assert.equal(core.nodesAwaited, false);
  });
});

describe('a job whose run ended', () => {
  it('open waits again, and is ended with what its lost attempts made due', () => {
    const one = job();
    core.submitted(one);
    round();
    core.runEnded(one, { kind: 'open', failure: FAILURE });
    assert.deepEqual(begun(round(one)), [`${one.id} failure`]);
    core.runEnded(one, { kind: 'final' });
    assert.equal(core.memories.find(one.id), undefined);
  });

  it('with refusals only is left alone for a while', () => {
    const one = job();
    core.submitted(one);
    core.memories.claimRefused(one.id);
    core.runEnded(one, { kind: 'open' });
    node = freeNode();
    assert.deepEqual(begun(round(one)), []);
    nowMs += 100;
    node = freeNode();
    assert.deepEqual(begun(round(one)), [`${one.id} node`]);
  });

  it('elsewhere, or by a failure of the database, causes no round by itself', () => {
    round();
    for (const kind of ['not-claimed', 'abandoned'] as const) {
      const one = job();
      core.submitted(one);
      core.runEnded(one, { kind });
      assert.equal(core.beginRound(), false);
      node = freeNode();
    }
  });
});

describe('a job that no node alive can do, where others may come', () => {
  const jxl = () => job({ outputFormat: 'jxl' });

  beforeEach(() => {
    core = coreWith(undefined);
  });

  it('waits as long as any job may', () => {
    const odd = jxl();
    nowMs = FIRST_ADMISSION_MS_MAX - 1;
    assert.deepEqual(begun(round({ ...odd, readAtMs: nowMs })), []);
    nowMs += 1;
    core.outdate();
    assert.deepEqual(begun(round({ ...odd, readAtMs: nowMs })), [`${odd.id} failure`]);
  });

  it('causes no round by itself: only another node helps it, and that is polled for', () => {
    round();
    const odd = jxl();
    assert.deepEqual(core.submitted(odd), { placed: [], wakeInMs: undefined });
    assert.equal(core.roomChanged('reported'), undefined);
    assert.equal(core.beginRound(), false);
    core.outdate();
    round(odd);
    assert.equal(core.beginRound(), false);
    node = freeNode(1, 'jxl');
    core.outdate();
    assert.deepEqual(begun(round(odd)), [`${odd.id} node`]);
  });

  it('holds up nobody: neither what is paid for nor the playground', () => {
    round();
    core.submitted(jxl());
    const paid = job();
    assert.deepEqual(begun(core.submitted(paid)), [`${paid.id} node`]);
    core.runEnded(paid, { kind: 'final' });
    node = freeNode();
    const unpaid = job({ class: 'playground' });
    core.outdate();
    assert.deepEqual(begun(round(jxl(), unpaid)), [`${unpaid.id} node`]);
  });
});

describe('a job of the playground', () => {
  const unpaid = (changes: Partial<QueuedJob> = {}) =>
    job({ class: 'playground', apiKeyId: 'a-playground', ...changes });

  it('begins where nothing that is paid for waits', () => {
    const one = unpaid();
    assert.deepEqual(begun(core.submitted(one)), [`${one.id} node`]);
  });

  it('waits while any that is paid for waits for a node, however old it is', () => {
    occupy(10_000);
    const paid = job();
    const old = unpaid({ createdAtMs: -3_000_000 });
    assert.deepEqual(begun(round(paid, old)), []);
    // Room for one of the two, and for a smaller one besides.
    node = freeNode();
    const large = job({ input: { format: 'png', width: 20_000, height: 5_000 } });
    node.reserve(390);
    assert.deepEqual(begun(round(large, old)), []);
    core.outdate();
    assert.deepEqual(begun(round(old)), [`${old.id} node`], 'the others are gone');
  });

  it('goes after asynchronous ones that came later', () => {
    const old = unpaid({ createdAtMs: -3_000_000 });
    const paid = job({ class: 'async' });
    assert.deepEqual(begun(round(old, paid))?.[0], `${paid.id} node`);
  });

  it('does not make one that is paid for wait for a round', () => {
    occupy(10_000);
    core.submitted(unpaid());
    node = freeNode();
    const paid = job();
    assert.deepEqual(begun(core.submitted(paid)), [`${paid.id} node`]);
  });

  it('leaves three places in four to what is paid for', () => {
    node = freeNode(4);
    const some = Array.from({ length: 4 }, () => unpaid());
    assert.equal(round(...some)?.placed.length, 1);
    const paid = Array.from({ length: 3 }, () => job());
    assert.deepEqual(
      paid.map(one => core.submitted(one).placed.length),
      [1, 1, 1],
    );
    for (const one of [some[0]!, ...paid]) core.runEnded(one, { kind: 'final' });
    node = freeNode(4);
    assert.equal(round(...some.slice(1))?.placed.length, 1);
  });

  it('ends when its time is over, though it may not begin', () => {
    occupy(10_000);
    const late = unpaid({ createdAtMs: -2 * 3_600_000 });
    assert.deepEqual(begun(round(job(), late)), [`${late.id} failure`]);
  });
});
