import test from 'ava';
import { ContractError } from '#contract/errors.ts';
import { at } from '../../../test/support/at.ts';
import { type ImageOrder, type ImageResult, Pipeline, type PlanRun } from '../../src/pipeline.ts';
import { FakeEnginePool, FakePicturePool, StageGates, TINY_MODEL } from '../grpc/fake-pools.ts';

/** A plan of a subject and another model, each with engines that the test can spoil. */
function openPlan(otherRole: PlanRun['role'] = 'opinion') {
  const pictures = new FakePicturePool(new StageGates());
  const make = (model: string, role: PlanRun['role']) => {
    const gates = new StageGates();
    const engines = new FakeEnginePool(gates);
    return { gates, engines, run: { model: { ...TINY_MODEL, model }, engines, role } };
  };
  const subject = make('first', 'subject');
  const opinion = make('second', otherRole);
  const order: ImageOrder = {
    plan: { name: 'both', runs: [subject.run, opinion.run] },
    declared: undefined,
    outputFormat: 'png',
    resultKind: 'cutout',
    refinement: true,
    foregroundEstimation: false,
    priority: 'sync',
  };
  const process = async (signal = new AbortController().signal) => {
    const sent: ImageResult[] = [];
    const timings = await new Pipeline(pictures).process(
      order,
      {
        receive: async () => ({ image: Buffer.from('a file') }),
        stageBegan: () => undefined,
        send: async result => void sent.push(result),
      },
      signal,
    );
    return { ...at(sent, 0), timings };
  };
  return { pictures, subject, opinion, process };
}

const names = (runs: readonly PlanRun[]) => runs.map(({ model }) => model.model);

test('a plan of several models › gives the picture worker every matte with its part, and the choices of the order', async t => {
  const { pictures, process } = openPlan();
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
  t.deepEqual(result.missing, []);
  const { mattes, refinement, foregroundEstimation } = at(pictures.finished, 0);
  t.deepEqual(
    mattes.map(({ role }) => role),
    ['subject', 'opinion'],
  );
  t.deepEqual([refinement, foregroundEstimation], [true, false]);
});

test('a plan of several models › has the picture resampled for the second one when that runs, as part of decoding', async t => {
  const { pictures, opinion, process } = openPlan();
  const { timings } = await process();
  const { inputWidth: width, inputHeight: height } = opinion.run.model;
  t.deepEqual(at(pictures.decoded, 0).modelInputs, [{ width, height }]);
  t.deepEqual(pictures.resampled, [{ width, height }]);
  t.is(timings.decodeMs, 4 + 8);
});

test('a plan of several models › fails where the picture is lost before the second one sees it', async t => {
  const { pictures, opinion, process } = openPlan();
  pictures.gates.failOnce('resample', new ContractError('PICTURE_WORKER_LOST', 'gone'));
  await t.throwsAsync(process(), { code: 'PICTURE_WORKER_LOST' });
  t.deepEqual([opinion.engines.runs.length, pictures.leasesOut], [0, 0]);
});

const passing = ['ENGINE_LOST', 'NODE_FAULT', 'NODE_UNAVAILABLE', 'NODE_OVERLOADED'] as const;
for (const code of passing) {
  test(`a plan of several models › serves without an opinion that ends in ${code}, and says so`, async t => {
    const { pictures, opinion, process } = openPlan();
    opinion.gates.failOnce('infer', new ContractError(code, 'gone'));
    const result = await process();
    t.deepEqual(names(result.runs), ['first']);
    t.deepEqual(names(result.missing), ['second']);
    t.is(at(pictures.finished, 0).mattes.length, 1);
  });
}

test('a plan of several models › does not serve without the subject', async t => {
  const { subject, process } = openPlan();
  subject.gates.failOnce('infer', new ContractError('ENGINE_LOST', 'gone'));
  await t.throwsAsync(process(), { code: 'ENGINE_LOST' });
});

test('a plan of several models › takes a bug in an opinion for a bug', async t => {
  const { opinion, process } = openPlan();
  opinion.gates.failOnce('infer', new TypeError('a bug'));
  await t.throwsAsync(process(), { instanceOf: TypeError });
});

test('a plan of several models › ends when the caller goes during an opinion', async t => {
  const { pictures, opinion, process } = openPlan();
  const caller = new AbortController();
  opinion.gates.hold('infer');
  const ended = t.throwsAsync(process(caller.signal), { code: 'CALL_CANCELLED' });
  await opinion.gates.reached('infer');
  caller.abort(new ContractError('CALL_CANCELLED', 'gone'));
  await ended;
  t.deepEqual([pictures.finished.length, pictures.leasesOut], [0, 0]);
});

test('a second look › is taken of a picture in which the subject is unsure, and timed by itself', async t => {
  const { pictures, opinion: second, process } = openPlan('secondLook');
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
  t.deepEqual(
    at(pictures.finished, 0).mattes.map(({ role }) => role),
    ['subject', 'secondLook'],
  );
  t.is(second.engines.runs.length, 1);
  t.deepEqual([result.timings.inferMs, result.timings.secondLookMs], [2, 2]);
});

for (const role of ['opinion', 'secondLook'] as const) {
  test(`a run of the role ${role} › costs nothing where the subject is sure, and is not missed`, async t => {
    const { pictures, subject, opinion: second, process } = openPlan(role);
    subject.engines.alpha = 255;
    const result = await process();
    t.deepEqual(names(result.runs), ['first']);
    t.deepEqual(result.missing, []);
    t.is(at(pictures.finished, 0).mattes.length, 1);
    t.is(second.engines.runs.length, 0);
    t.deepEqual(pictures.resampled, []);
    t.is(result.timings.secondLookMs, 0);
  });

  test(`engines of a role ${role} that have yet to start › are not waited for, nor those that are all down: the result says what it lacks`, async t => {
    for (const state of ['starting', 'ready'] as const) {
      const { pictures, opinion: other, process } = openPlan(role);
      other.engines.set({ state, enginesReady: 0 });
      other.gates.hold('infer');
      const result = await process();
      t.deepEqual(names(result.runs), ['first']);
      t.deepEqual(names(result.missing), ['second']);
      t.deepEqual([other.engines.runs.length, pictures.resampled.length], [0, 0]);
      t.is(result.timings.secondLookMs, 0);
    }
  });

  test(`engines of a role ${role} that have yet to start › are not waited for either by a run that was queued when the last one died`, async t => {
    const { pictures, opinion: other, process } = openPlan(role);
    other.gates.hold('infer');
    const processed = process();
    await other.gates.reached('infer');
    other.engines.set({ enginesReady: 0 });
    const result = await processed;
    t.deepEqual(names(result.missing), ['second']);
    t.is(pictures.leasesOut, 0);
    // The listener is removed with the run.
    t.is(other.engines.listenerCount, 0);
  });
}

test('waits for the engines of a subject, whatever they do', async t => {
  const { subject, process } = openPlan();
  subject.engines.set({ state: 'starting', enginesReady: 0 });
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
});
