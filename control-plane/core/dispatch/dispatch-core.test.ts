import assert from 'node:assert/strict';
import { NodeView, type Reservation } from '@matting/nodes/node-view.ts';
import { ABILITIES, modelsSeen, REPORT, saidPlan } from '@matting/nodes/test/nodes-seen.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { DispatchCore, LIST_MAX, type Step } from '@matting/queue/dispatch-core.ts';
import { UNPAID } from '@matting/queue/job.ts';
import { JobMemories } from '@matting/queue/job-memories.ts';
import { type JobLane, laneOf, queuePositionMs } from '@matting/queue/lanes.ts';
import ava from 'ava';
import type { JobNeeds } from './job-needs.ts';
import { NodeCapacity, type PlaceableJob } from './node-capacity.ts';

const LANES_MAX = 32;
const test = ava.serial;

const GRACE_MS = 1000;
const FAILURE = { code: 'PROCESSING_FAILED', detail: 'a detail', retryable: true } as const;

let nowMs: number;
let node: NodeView | undefined;
let others: NodeView[];
let downloadsFree: number;
let fullHosts: string[];
let core: DispatchCore<PlaceableJob, JobNeeds, Reservation, string>;

function freeNode(engines = 1, output: OutputFormat = 'png'): NodeView {
  const bounds = { jxlPixelsMax: 100_000_000, megapixelsAloneMax: 400 };
  const view = new NodeView({
    ...{ ...ABILITIES, ...bounds, engines },
    outputFormats: new Set([output]),
    capabilities: new Set(['crop_run']),
  });
  view.take({ ...REPORT, enginesReady: engines }, nowMs);
  for (let done = 0; done < 5; done++) view.judge('well', nowMs);
  return view;
}

const GROUPS = { syncSlotsShare: 0.25, headStartMs: 30 * 60_000 };

function coreWith(graceMs: number | undefined): typeof core {
  const random = () => 0.5;
  const now = () => nowMs;
  return new DispatchCore<PlaceableJob, JobNeeds, Reservation, string>({
    capacity: new NodeCapacity({
      snapshots: () => [node, ...others].flatMap(view => view?.snapshot() ?? []),
      offer: ({ nodeId }, { megapixels }) =>
        [...others, node].find(view => view?.abilities.nodeId === nodeId)?.reserve(megapixels),
      random,
      now,
    }),
    downloads: {
      hasRoom: ({ sourceHost }) => downloadsFree > 0 && !fullHosts.includes(sourceHost ?? ''),
      hasRoomFor: () => downloadsFree > 0,
      fullHosts: () => fullHosts,
      begin: ({ id }) => (downloadsFree-- > 0 ? `download of ${id}` : undefined),
    },
    noNodeGraceMs: graceMs,
    groups: GROUPS,
    random,
    now,
  });
}

test.beforeEach(() => {
  nowMs = 0;
  downloadsFree = 1;
  fullHosts = [];
  node = freeNode();
  others = [];
  core = coreWith(GRACE_MS);
});

let jobs = 0;

function job(changes: Partial<PlaceableJob> = {}): PlaceableJob {
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

const download = (changes: Partial<PlaceableJob> = {}) =>
  job({ input: null, sourceHost: 'host', state: 'accepted', ...changes });

function laneFrom(one: PlaceableJob): JobLane {
  const firstQueueAtMs = queuePositionMs(one.class, one.createdAtMs);
  return { ...laneOf(one), firstQueueAtMs, readAtMs: one.readAtMs };
}

function round(...table: PlaceableJob[]): Step<PlaceableJob, Reservation, string> | undefined {
  if (!core.beginRound()) return undefined;
  if (core.lanesOutdated) core.lanesRead(table.map(laneFrom));
  const chosen = core.chooseLanes();
  return core.place(chosen, table.slice(0, LIST_MAX));
}

function begun(step: Step<PlaceableJob, unknown, unknown> | undefined): string[] | undefined {
  return step?.placed.map(({ job: { id }, placement }) => `${id} ${placement.kind}`);
}

function occupy(estimatedWaitMs: number): void {
  node?.take({ ...REPORT, imagesInFlight: 1, estimatedWaitMs }, nowMs);
}

test('a job that is submitted › begins at once if no job waits before it', t => {
  const one = job();
  t.deepEqual(begun(core.submitted(one)), [`${one.id} node`]);
  t.is(node?.snapshot()?.ownImages, 1, 'its room is taken');
});

test('a job that is submitted › waits behind earlier jobs, and causes a round only if there is room', t => {
  occupy(500);
  round();
  const first = core.submitted(job());
  t.deepEqual([first.placed, first.wakeInMs], [[], 450], 'until it would be taken');
  t.deepEqual(core.submitted(job()), { placed: [], wakeInMs: 0 });
  node = undefined;
  t.deepEqual(core.submitted(job()), { placed: [], wakeInMs: undefined });
});

test('a job that is submitted › downloads at once, and wakes a round, only if a slot is free', t => {
  round();
  const one = download();
  t.deepEqual(begun(core.submitted(one)), [`${one.id} download`]);
  t.deepEqual(core.submitted(download()), { placed: [], wakeInMs: undefined });
  t.deepEqual(core.submitted(download()), { placed: [], wakeInMs: undefined });
  downloadsFree = 1;
  t.deepEqual(core.submitted(download()), { placed: [], wakeInMs: 0 });
  t.truthy(core.beginRound());
});

test('a round › is needed at first, and then only for a cause', t => {
  t.not(round(), undefined);
  t.is(round(), undefined);
  core.outdate();
  t.not(round(), undefined);
  core.downloadEnded();
  t.not(round(), undefined);
  t.is(round(), undefined);
});

test('a round › begins the jobs that an engine is about to take, and remembers that others wait', t => {
  const many = Array.from({ length: 5 }, () => job());
  const other = job({ accountId: 'b', apiKeyId: 'b-1' });
  t.deepEqual(begun(round(...many, other)), [`${many[0]?.id} node`]);
  t.true(core.nodesAwaited);
  t.is(core.roomChanged('ended'), 0);
  t.is(core.roomChanged('reported'), 10);
});

test('a round › knows that behind a full listing more may wait, though all of it began', t => {
  const doomed = (count: number) => Array.from({ length: count }, () => job({ takeovers: 10 }));
  t.is(round(...doomed(LIST_MAX - 1))?.placed.length, LIST_MAX - 1);
  t.false(core.nodesAwaited, 'a listing that is not full is all that there is');
  core.outdate();
  t.is(round(...doomed(LIST_MAX))?.placed.length, LIST_MAX);
  t.true(core.nodesAwaited);
});

test('a round › counts running jobs when it orders accounts', t => {
  const [first, second] = [job(), job()];
  const other = job({ accountId: 'b', apiKeyId: 'b-1' });
  core.submitted(first);
  node = freeNode();
  const step = round(first, second, other);
  t.is(begun(step)?.[0], `${other.id} node`);
});

test('a round › places nothing twice', t => {
  const one = job();
  core.submitted(one);
  node = freeNode();
  core.outdate();
  t.deepEqual(begun(round(one)), []);
});

test('a round › is not caused by a report while no job waits', t => {
  round();
  t.is(core.roomChanged('reported'), undefined);
});

test('a round › fails jobs that are due to fail', t => {
  const doomed = job({ takeovers: 10 });
  const step = round(doomed);
  t.deepEqual(begun(step), [`${doomed.id} failure`]);
});

test('a round › ends a job that no routable node can do once the grace is over', t => {
  const odd = job({ input: { format: 'avif', width: 10, height: 10 } });
  t.deepEqual(begun(round(odd)), []);
  nowMs += GRACE_MS;
  core.outdate();
  t.deepEqual(begun(round(odd)), [], 'the grace itself is waited');
  nowMs += 1;
  core.outdate();
  t.regex(failureIn(round(odd)), /reads avif.* starting/);
});

function failureIn(step: ReturnType<typeof round>): string {
  const [one, ...others] = step?.placed ?? [];
  assert.ok(one?.placement.kind === 'failure' && others.length === 0);
  const { code, detail, retryable } = one.placement.failure;
  assert.deepEqual([code, retryable], ['PROCESSING_FAILED', true]);
  return detail;
}

for (const [what, changes, detail] of [
  ['HEIC', { input: { format: 'heic', width: 10, height: 10 } }, /reads heic.*MATTING_HEIF/],
  ['an output', { outputFormat: 'jxl' }, /jxl is not available/],
  ['a size', { input: { format: 'png', width: 30_000, height: 30_000 } }, /pixels/],
] as const) {
  test(`a round › says what no node can do: ${what}`, t => {
    const odd = job(changes);
    round(odd);
    nowMs += GRACE_MS + 1;
    core.outdate();
    t.regex(failureIn(round(odd)), detail);
  });
}

test('a round › leaves downloads without a place, and jobs of full hosts, to a later one', t => {
  fullHosts = ['slow'];
  const [fast, more] = [download(), download()];
  core.outdate();
  t.truthy(core.beginRound());
  core.lanesRead([laneFrom(fast)]);
  const chosen = core.chooseLanes();
  t.deepEqual(
    chosen.lanes.map(({ exceptHosts }) => exceptHosts),
    [['slow']],
  );
  t.deepEqual(begun(core.place(chosen, [fast, more])), [`${fast.id} download`]);
  core.outdate();
  t.truthy(core.beginRound());
  t.deepEqual(core.chooseLanes(), { lanes: [], all: true }, 'no place for any');
});

test('a round › reads further lanes at once if the first ones were empty', t => {
  const many = Array.from({ length: LANES_MAX + 1 }, (_, at) => job({ apiKeyId: `a-${at}` }));
  t.truthy(core.beginRound());
  core.lanesRead(many.map(laneFrom));
  const chosen = core.chooseLanes();
  t.deepEqual([chosen.lanes.length, chosen.all], [LANES_MAX, false]);
  t.deepEqual(core.place(chosen, []), { placed: [], wakeInMs: 0 });
  t.truthy(core.beginRound());
  t.deepEqual([core.chooseLanes().lanes.length, core.chooseLanes().all], [1, true]);
});

test('a round › does not forget while it is under way that jobs waited before it', t => {
  occupy(500);
  round(job());
  node?.take(REPORT, nowMs);
  t.truthy(core.beginRound());
  t.true(core.nodesAwaited);
  const chosen = core.chooseLanes();
  core.place(chosen, []);
  t.false(core.nodesAwaited);
});

test('a job whose run ended › open waits again, and fails once it lost enough attempts', t => {
  const one = job();
  core.submitted(one);
  round();
  core.runEnded(one, { kind: 'open', failure: FAILURE });
  t.deepEqual(begun(round(one)), [`${one.id} failure`]);
  core.runEnded(one, { kind: 'final' });
  t.is(core.memories.find(one.id), undefined);
});

test('a job whose run ended › with refusals only is not tried for a while', t => {
  const one = job();
  core.submitted(one);
  core.memories.claimRefused(one.id);
  core.runEnded(one, { kind: 'open' });
  node = freeNode();
  t.deepEqual(begun(round(one)), []);
  nowMs += 100;
  node = freeNode();
  t.deepEqual(begun(round(one)), [`${one.id} node`]);
});

test('a job whose run ended › elsewhere, or by a failure of the database, causes no round by itself', t => {
  round();
  for (const kind of ['not-claimed', 'abandoned'] as const) {
    const one = job();
    core.submitted(one);
    core.runEnded(one, { kind });
    t.false(core.beginRound());
    node = freeNode();
  }
});

const jxl = () => job({ outputFormat: 'jxl' });

const prepare = () => {
  core = coreWith(undefined);
};

test('a job that no live node can do while others may come › waits as long as any job may', t => {
  prepare();
  const odd = jxl();
  nowMs = 3_600_000 - 1;
  t.deepEqual(begun(round({ ...odd, readAtMs: nowMs })), []);
  nowMs += 1;
  core.outdate();
  t.deepEqual(begun(round({ ...odd, readAtMs: nowMs })), [`${odd.id} failure`]);
});

test('a job that no live node can do while others may come › causes no round by itself: the poll notices a new node', t => {
  prepare();
  round();
  const odd = jxl();
  t.deepEqual(core.submitted(odd), { placed: [], wakeInMs: undefined });
  t.is(core.roomChanged('reported'), undefined);
  t.false(core.beginRound());
  core.outdate();
  round(odd);
  t.false(core.beginRound());
  node = freeNode(1, 'jxl');
  core.outdate();
  t.deepEqual(begun(round(odd)), [`${odd.id} node`]);
});

test('a job that no live node can do while others may come › delays no other job', t => {
  prepare();
  round();
  core.submitted(jxl());
  const paid = job();
  t.deepEqual(begun(core.submitted(paid)), [`${paid.id} node`]);
  core.runEnded(paid, { kind: 'final' });
  node = freeNode();
  const other = job();
  core.outdate();
  t.deepEqual(begun(round(jxl(), other)), [`${other.id} node`]);
});

const named = (changes: Partial<PlaceableJob> = {}) => job({ model: 'heavy', ...changes });
const mayNeed = () => job({ correction: { cropRun: { model: 'heavy' } } });
const heavyAway = () => {
  const models = modelsSeen(saidPlan('heavy'));
  const capabilities = new Set(['crop_run']);
  const heavy = new NodeView({
    ...{ ...ABILITIES, nodeId: 'heavy', bootId: 'heavy', models, onlyByName: true, capabilities },
  });
  others = [heavy];
  heavy.take({ ...REPORT, imagesInFlight: 1, estimatedWaitMs: 4000, inferMs: 4000 }, nowMs);
};

for (const [what, waiting] of [
  ['a job that names a model', named],
  ['a correction that may need the model', mayNeed],
] as const) {
  test(`${what} › waits for its engines and holds up no other`, t => {
    round();
    heavyAway();
    t.deepEqual(core.submitted(waiting()), { placed: [], wakeInMs: 3950 });
    t.false(core.nodesAwaited);
    const plain = job();
    t.deepEqual(begun(core.submitted(plain)), [`${plain.id} node`]);
    t.deepEqual(core.submitted(waiting()), { placed: [], wakeInMs: 0 }, 'behind the first');
    t.is(core.roomChanged('reported'), 10);
  });

  test(`${what} › hides none of its key behind it: such jobs are passed over by turns`, t => {
    heavyAway();
    const many = Array.from({ length: LIST_MAX }, () => waiting());
    const plain = job();
    t.deepEqual(round(...many, plain), { placed: [], wakeInMs: 0 });
    const passing = () => {
      t.true(core.beginRound());
      return core.chooseLanes();
    };
    const chosen = passing();
    t.deepEqual(
      chosen.lanes.map(({ unboundOnly }) => unboundOnly),
      [true],
    );
    t.deepEqual(begun(core.place(chosen, [plain])), [`${plain.id} node`]);
    t.is(core.roomChanged('reported'), 10, 'they are known to wait');
    t.is(passing().lanes[0]?.unboundOnly, undefined);
  });
}

test('a job that names a model › keeps no place among the lanes from jobs that name none', t => {
  heavyAway();
  const keys = Array.from({ length: LANES_MAX }, (_, key) => ({ apiKeyId: `key-${key}` }));
  const first = keys.map(key => named(key));
  const plain = job({ apiKeyId: 'late', class: 'async' });
  core.beginRound();
  core.lanesRead([...first, plain].map(laneFrom));
  t.deepEqual(core.place(core.chooseLanes(), first), { placed: [], wakeInMs: 0 });
  t.true(core.beginRound());
  const chosen = core.chooseLanes();
  t.deepEqual(
    chosen.lanes.map(({ apiKeyId }) => apiKeyId),
    ['late'],
  );
  t.deepEqual(begun(core.place(chosen, [plain])), [`${plain.id} node`]);
  core.outdate();
  const more = job({ apiKeyId: 'key-3' });
  core.submitted(more);
  round(...first, more);
  core.beginRound();
  t.deepEqual(
    core
      .chooseLanes()
      .lanes.map(({ apiKeyId }) => apiKeyId)
      .sort(),
    ['key-3', 'late'],
    'a lane is passed over no longer where a job came to it that names none',
  );
});

test('nodes of other models › have no room for jobs that name none, and make no round for them', t => {
  const models = modelsSeen(saidPlan('heavy'));
  const other = new NodeView({ ...ABILITIES, nodeId: 'other', models, onlyByName: true });
  other.take({ ...REPORT, enginesReady: 4 }, nowMs);
  others = [other];
  occupy(500);
  node?.take({ ...REPORT, imagesFree: 0, imagesInFlight: 4 }, nowMs);
  round();
  const plain = job();
  t.deepEqual(core.submitted(plain), { placed: [], wakeInMs: undefined });
  t.false(core.beginRound(), 'the room is none for it');
  const heavy = named();
  t.deepEqual(begun(core.submitted(heavy)), [`${heavy.id} node`]);
  const some = Array.from({ length: 4 }, () => ofGroup({ model: 'heavy' }));
  core.outdate();
  t.is(round(plain, ...some)?.placed.length, 2, 'a place of three is left to synchronous ones');
});

test('a job that names a model › that no node has fails once the grace is over', t => {
  const odd = named();
  t.deepEqual(begun(round(odd)), []);
  nowMs += GRACE_MS + 1;
  core.outdate();
  t.regex(failureIn(round(odd)), /model is not available/);
});

test('jobs that cost nothing › take the turns of their account and key, and delay paid jobs by no more', t => {
  node = freeNode(4);
  const free = { class: UNPAID, accountId: 'b', apiKeyId: 'b-free', createdAtMs: -3_000_000 };
  const some = Array.from({ length: 6 }, () => job(free));
  const [ours, ofTheirs] = [[job(), job()], job({ accountId: 'b', apiKeyId: 'b-1' })];
  const jobs = [some[0]!, ours[0]!, ofTheirs, ours[1]!];
  t.deepEqual(
    begun(round(...some, ofTheirs, ...ours)),
    jobs.map(({ id }) => `${id} node`),
  );
});

const ofGroup = (changes: Partial<PlaceableJob> = {}) =>
  job({ class: 'async', accountId: 'b', apiKeyId: 'b-1', group: { id: 'b', item: 0 }, ...changes });

test('a job of a group › leaves a place in four while synchronous requests come, and takes all else', t => {
  const some = Array.from({ length: 6 }, () => ofGroup());
  const beginsWith = (engines: number) => {
    for (const one of some) core.runEnded(one, { kind: 'final' });
    node = freeNode(engines);
    core.outdate();
    return round(...some)?.placed.length;
  };
  t.is(beginsWith(4), 4);
  const first = job();
  node = freeNode(4);
  core.submitted(first);
  core.runEnded(first, { kind: 'final' });
  t.is(beginsWith(4), 3);
  t.false(core.beginRound(), 'the place that is left is none for them');
  const second = job();
  t.deepEqual(begun(core.submitted(second)), [`${second.id} node`], 'at once');
  core.runEnded(second, { kind: 'final' });
  nowMs += 10_001;
  t.is(beginsWith(4), 4);
  core.outdate();
  round(...some, job(), ...some);
  t.is(beginsWith(4), 3, 'one that another replica took counts, too');
});

test('a job of a group › takes every place once it has waited for half an hour', t => {
  core.submitted(job());
  node = freeNode(4);
  core.outdate();
  const old = { createdAtMs: nowMs - 30 * 60_000 };
  const some = Array.from({ length: 4 }, () => ofGroup(old));
  t.is(round(...some)?.placed.length, 4);
});

test('a job of a group › has the only place of a fleet', t => {
  core.submitted(job());
  node = freeNode();
  node.take({ ...REPORT, imagesFree: 1 }, nowMs);
  core.outdate();
  t.is(round(ofGroup())?.placed.length, 1);
});

test('the memory of jobs › spaces out a job that meets refusals only, up to a bound', t => {
  let nowMs = 0;
  const memories = new JobMemories(() => nowMs);
  t.false(memories.mustWait('job'));
  const waits: number[] = [];
  for (let claims = 1; claims <= 8; claims += 1) {
    memories.claimRefused('job');
    const from = nowMs;
    while (memories.mustWait('job')) nowMs += 10;
    waits.push(nowMs - from);
  }
  t.deepEqual(waits, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
  t.false(memories.mustWait('job'));
  memories.admitted('job');
  memories.claimRefused('job');
  nowMs += 100;
  t.is(memories.mustWait('job'), false, 'an admission makes the waits short again');
});

test('the memory of jobs › knows since when no node can do a job, and forgets it when one can', t => {
  let nowMs = 5;
  const memories = new JobMemories(() => nowMs);
  t.is(memories.incapableSince('job', false), undefined);
  t.is(memories.find('job'), undefined);
  t.is(memories.incapableSince('job', true), 5);
  nowMs = 9;
  t.is(memories.incapableSince('job', true), 5);
  t.is(memories.incapableSince('job', false), undefined);
  t.is(memories.incapableSince('job', true), 9);
});

test('the memory of jobs › is bounded, and forgets the one remembered longest', t => {
  const memories = new JobMemories(() => 0);
  for (let job = 0; job <= 10_000; job += 1) memories.nodeLost(`job-${job}`, 'node');
  t.is(memories.find('job-0'), undefined);
  t.not(memories.find('job-1'), undefined);
});
