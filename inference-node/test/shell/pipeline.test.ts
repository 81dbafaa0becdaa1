import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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

describe('a plan of several models', () => {
  it('gives the picture worker every matte with its part, and the choices of the order', async () => {
    const { pictures, process } = openPlan();
    const result = await process();
    assert.deepEqual(names(result.runs), ['first', 'second']);
    assert.deepEqual(result.missing, []);
    const { mattes, refinement, foregroundEstimation } = at(pictures.finished, 0);
    assert.deepEqual(
      mattes.map(({ role }) => role),
      ['subject', 'opinion'],
    );
    assert.deepEqual([refinement, foregroundEstimation], [true, false]);
  });

  it('has the picture resampled for the second one when that runs, as part of decoding', async () => {
    const { pictures, opinion, process } = openPlan();
    const { timings } = await process();
    const { inputWidth: width, inputHeight: height } = opinion.run.model;
    assert.deepEqual(at(pictures.decoded, 0).modelInputs, [{ width, height }]);
    assert.deepEqual(pictures.resampled, [{ width, height }]);
    assert.equal(timings.decodeMs, 4 + 8);
  });

  it('fails where the picture is lost before the second one sees it', async () => {
    const { pictures, opinion, process } = openPlan();
    pictures.gates.failOnce('resample', new ContractError('PICTURE_WORKER_LOST', 'gone'));
    await assert.rejects(process(), { code: 'PICTURE_WORKER_LOST' });
    assert.deepEqual([opinion.engines.runs.length, pictures.leasesOut], [0, 0]);
  });

  const passing = ['ENGINE_LOST', 'NODE_FAULT', 'NODE_UNAVAILABLE', 'NODE_OVERLOADED'] as const;
  for (const code of passing) {
    it(`serves without an opinion that ends in ${code}, and says so`, async () => {
      const { pictures, opinion, process } = openPlan();
      opinion.gates.failOnce('infer', new ContractError(code, 'gone'));
      const result = await process();
      assert.deepEqual(names(result.runs), ['first']);
      assert.deepEqual(names(result.missing), ['second']);
      assert.equal(at(pictures.finished, 0).mattes.length, 1);
    });
  }

  it('does not serve without the subject', async () => {
    const { subject, process } = openPlan();
    subject.gates.failOnce('infer', new ContractError('ENGINE_LOST', 'gone'));
    await assert.rejects(process(), { code: 'ENGINE_LOST' });
  });

  it('takes a bug in an opinion for a bug', async () => {
    const { opinion, process } = openPlan();
    opinion.gates.failOnce('infer', new TypeError('a bug'));
    await assert.rejects(process(), TypeError);
  });

  it('ends when the caller goes during an opinion', async () => {
    const { pictures, opinion, process } = openPlan();
    const caller = new AbortController();
    opinion.gates.hold('infer');
    const ended = assert.rejects(process(caller.signal), { code: 'CALL_CANCELLED' });
    await opinion.gates.reached('infer');
    caller.abort(new ContractError('CALL_CANCELLED', 'gone'));
    await ended;
    assert.deepEqual([pictures.finished.length, pictures.leasesOut], [0, 0]);
  });
});

describe('a second look', () => {
  it('is taken of a picture in which the subject is unsure, and timed by itself', async () => {
    const { pictures, opinion: second, process } = openPlan('secondLook');
    const result = await process();
    assert.deepEqual(names(result.runs), ['first', 'second']);
    assert.deepEqual(
      at(pictures.finished, 0).mattes.map(({ role }) => role),
      ['subject', 'secondLook'],
    );
    assert.equal(second.engines.runs.length, 1);
    assert.deepEqual([result.timings.inferMs, result.timings.secondLookMs], [2, 2]);
  });
});

for (const role of ['opinion', 'secondLook'] as const) {
  describe(`a run of the role ${role}`, () => {
    it('costs nothing where the subject is sure, and is not missed', async () => {
      const { pictures, subject, opinion: second, process } = openPlan(role);
      subject.engines.alpha = 255;
      const result = await process();
      assert.deepEqual(names(result.runs), ['first']);
      assert.deepEqual(result.missing, []);
      assert.equal(at(pictures.finished, 0).mattes.length, 1);
      assert.equal(second.engines.runs.length, 0);
      assert.deepEqual(pictures.resampled, []);
      assert.equal(result.timings.secondLookMs, 0);
    });
  });

  describe(`engines of a role ${role} that have yet to start`, () => {
    it('are not waited for, nor those that are all down: the result says what it lacks', async () => {
      for (const state of ['starting', 'ready'] as const) {
        const { pictures, opinion: other, process } = openPlan(role);
        other.engines.set({ state, enginesReady: 0 });
        other.gates.hold('infer');
        const result = await process();
        assert.deepEqual(names(result.runs), ['first']);
        assert.deepEqual(names(result.missing), ['second']);
        assert.deepEqual([other.engines.runs.length, pictures.resampled.length], [0, 0]);
        assert.equal(result.timings.secondLookMs, 0);
      }
    });

    it('are not waited for either by a run that was queued when the last one died', async () => {
      const { pictures, opinion: other, process } = openPlan(role);
      other.gates.hold('infer');
      const processed = process();
      await other.gates.reached('infer');
      other.engines.set({ enginesReady: 0 });
      const result = await processed;
      assert.deepEqual(names(result.missing), ['second']);
      assert.equal(pictures.leasesOut, 0);
      // The listener is removed with the run.
      assert.equal(other.engines.listenerCount, 0);
    });
  });
}

it('waits for the engines of a subject, whatever they do', async () => {
  const { subject, process } = openPlan();
  subject.engines.set({ state: 'starting', enginesReady: 0 });
  const result = await process();
  assert.deepEqual(names(result.runs), ['first', 'second']);
});
