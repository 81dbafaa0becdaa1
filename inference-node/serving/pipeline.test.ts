/**
 * Images that are given up or fail, at every stage. The test holds every step of the fake pools;
 * shared-buffers.test.ts has real ones.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { soon } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { type ImageOrder, PIPELINE_POSITIONS, Pipeline, type PlanRun } from './pipeline.ts';
import {
  FakeEnginePool,
  FakePicturePool,
  type FakeStage,
  StageGates,
  TINY_MODEL,
} from './test/fake-pools.ts';

const test = ava;

/** Half opaque everywhere, so that the plan's second model runs as well. */
const UNSURE = 128;

/** In order, by what holds an image there. */
const STAGES = [
  'receive',
  'acquire',
  'decode',
  'infer',
  'resample',
  'second infer',
  'finish',
  'send',
] as const;
type Stage = (typeof STAGES)[number];

/** The position that the pipeline reports. */
const POSITION_OF = {
  receive: 'receiving',
  acquire: 'waiting_for_worker',
  decode: 'decoding',
  infer: 'inferring',
  resample: 'inferring',
  'second infer': 'inferring',
  finish: 'encoding',
  send: 'sending',
} as const satisfies Record<Stage, (typeof PIPELINE_POSITIONS)[number]>;

const GONE = new ContractError('CALL_CANCELLED', 'The caller is gone.');

class Node {
  readonly gates = new StageGates();
  readonly others = { caller: new StageGates(), second: new StageGates() };
  readonly engines = new FakeEnginePool(this.gates);
  readonly second = new FakeEnginePool(this.others.second);
  readonly pictures = new FakePicturePool(this.gates);
  readonly pipeline = new Pipeline(this.pictures);
  readonly gone = new AbortController();
  readonly sent: Buffer[] = [];
  readonly #plan: readonly PlanRun[] = [
    { model: TINY_MODEL, engines: this.engines, role: 'subject' },
    { model: { ...TINY_MODEL, model: 'second' }, engines: this.second, role: 'opinion' },
  ];

  constructor() {
    this.engines.alpha = UNSURE;
  }

  get order(): ImageOrder {
    return {
      plan: { name: 'tiny', runs: this.#plan },
      declared: { width: 8, height: 6 },
      outputFormat: 'png',
      resultKind: 'cutout',
      refinement: true,
      foregroundEstimation: true,
      priority: 'sync',
    };
  }

  gateOf(stage: Stage): readonly [StageGates, FakeStage] {
    const { caller, second } = this.others;
    if (stage === 'receive') return [caller, 'acquire'];
    if (stage === 'send') return [caller, 'finish'];
    if (stage === 'second infer') return [second, 'infer'];
    return [this.gates, stage];
  }

  /** Resolves with the image's end, within 10 s. */
  async process(): Promise<unknown> {
    const { caller } = this.others;
    const exchange = {
      receive: async (signal: AbortSignal) => {
        await caller.pass('acquire', signal);
        return { image: Buffer.from('image') };
      },
      stageBegan: () => undefined,
      send: async ({ file }: { file: Buffer }, signal: AbortSignal) => {
        await caller.pass('finish', signal);
        this.sent.push(file);
      },
    };
    const done = this.pipeline.process(this.order, exchange, this.gone.signal);
    const ended = done.then(
      () => 'done',
      error => error,
    );
    return await soon(() => `an image to end that is ${this.#places() || 'nowhere'}`, ended);
  }

  #places(): string {
    return PIPELINE_POSITIONS.filter(place => this.pipeline.imagesAt(place) > 0).join(', ');
  }

  begun(): Partial<Record<Stage, number>> {
    const { pictures, engines, second } = this;
    return {
      decode: pictures.decoded.length,
      infer: engines.runs.length,
      resample: pictures.resampled.length,
      'second infer': second.runs.length,
      finish: pictures.finished.length,
    };
  }

  requireFree(t: ExecutionContext, stage: Stage): void {
    const hadWorker = STAGES.indexOf(stage) > STAGES.indexOf('acquire');
    t.is(this.pictures.leasesOut, 0, 'workers out');
    t.is(this.pictures.releases, hadWorker ? 1 : 0, 'a worker comes back once');
    t.is(this.#places(), '', 'the image is in the pipeline');
    t.is(this.pipeline.estimatedWaitMs(this.order.plan), 0, 'others are told to wait for it');
    t.deepEqual([this.engines.listenerCount, this.second.listenerCount], [0, 0], 'listeners');
    const later = STAGES.slice(STAGES.indexOf(stage) + 1);
    const begun = this.begun();
    t.deepEqual(
      later.filter(one => (begun[one] ?? 0) > 0),
      [],
      'later stages that began',
    );
    t.deepEqual(this.sent, []);
  }

  async requireServing(t: ExecutionContext): Promise<void> {
    const next = new AbortController();
    Object.defineProperty(this, 'gone', { value: next });
    t.is(await this.process(), 'done');
    t.is(this.sent.length, 1);
    t.is(this.pictures.leasesOut, 0);
  }
}

for (const stage of STAGES) {
  test(`a caller that goes away › in ${stage} is heard there, and everything comes back`, async t => {
    const node = new Node();
    const [gates, name] = node.gateOf(stage);
    gates.hold(name);
    const ended = node.process();
    await gates.reached(name);
    t.is(node.pipeline.imagesAt(POSITION_OF[stage]), 1, `it is ${POSITION_OF[stage]}`);
    node.gone.abort(GONE);
    t.is(await ended, GONE);
    node.requireFree(t, stage);
    for (const { signal } of [...node.engines.runs, ...node.second.runs]) {
      t.true(signal.aborted, 'an engine goes on for a caller that is gone');
    }
    gates.letGo(name);
    await node.requireServing(t);
  });

  test(`a caller that goes away › as ${stage} ends has nothing begun for it`, async t => {
    const node = new Node();
    const [gates, name] = node.gateOf(stage);
    gates.hold(name);
    const ended = node.process();
    await gates.reached(name);
    // The stage has ended before the caller goes.
    gates.letGo(name);
    node.gone.abort(GONE);
    // A result that was sent whole is done.
    t.is(await ended, stage === 'send' ? 'done' : GONE);
    if (stage !== 'send') node.requireFree(t, stage === 'acquire' ? 'decode' : stage);
  });

  test(`an error › in ${stage} is what the caller hears, and everything comes back`, async t => {
    const node = new Node();
    const [gates, name] = node.gateOf(stage);
    const error = new ContractError('INVALID_REQUEST', `the ${stage} failed`);
    gates.failOnce(name, error);
    t.is(await node.process(), error);
    node.requireFree(t, stage);
    await node.requireServing(t);
  });
}

test('a further look › waits for engines that start, and is left out where they are lost', async t => {
  const node = new Node();
  const { second } = node.others;
  second.hold('infer');
  node.second.set({ state: 'starting', enginesReady: 0 });
  const first = node.process();
  await second.reached('infer');
  node.second.set({ state: 'ready', enginesReady: 1 });
  second.letGo('infer');
  t.is(await first, 'done');
  node.second.set({ enginesReady: 0 });
  t.is(await node.process(), 'done');
  const mattes = node.pictures.finished.map(finished => finished.mattes.length);
  t.deepEqual(mattes, [2, 1]);
});

test('a caller that goes away › is not taken for a model that failed', async t => {
  const node = new Node();
  const { second } = node.others;
  second.hold('infer');
  const ended = node.process();
  await second.reached('infer');
  node.gone.abort(new ContractError('NODE_UNAVAILABLE', 'The node shuts down.'));
  t.is(await ended, node.gone.signal.reason, 'a code by which a model is left out');
  node.requireFree(t, 'second infer');
});
