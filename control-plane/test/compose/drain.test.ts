/** The order of ending. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DRAIN_MS_MAX, type DrainSteps, drainControlPlane } from '../../src/drain.ts';
import { silent } from '../services/dispatch/harness.ts';

function steps(changes: Partial<DrainSteps> = {}) {
  const done: string[] = [];
  const note = (what: string) => async () => {
    done.push(what);
  };
  const all: DrainSteps = {
    announce: () => done.push('announce'),
    finishRuns: note('finish'),
    giveRunsBack: () => done.push('give back'),
    handOverWaits: () => done.push('hand over'),
    closePublic: note('public'),
    closePublicConnections: () => done.push('cut'),
    finishDeliveries: note('deliveries'),
    giveDeliveriesBack: () => done.push('give deliveries back'),
    closeRegistry: note('registry'),
    closeRest: [note('fleet'), note('database')],
    ...changes,
  };
  return { all, done };
}

const never = new AbortController().signal;

describe('draining', () => {
  it('goes in order, the database last', async () => {
    const { all, done } = steps();
    await drainControlPlane(all, { hurry: never, log: silent });
    assert.deepEqual(done, [
      'announce',
      'finish',
      'hand over',
      'public',
      'deliveries',
      'registry',
      'fleet',
      'database',
    ]);
  });

  it('tries every step, whatever became of the ones before', async () => {
    const broken = () => Promise.reject(new Error('broken'));
    const { all, done } = steps({
      finishRuns: broken,
      closePublic: broken,
      finishDeliveries: broken,
      closeRegistry: broken,
    });
    await drainControlPlane(all, { hurry: never, log: silent });
    assert.deepEqual(done, ['announce', 'hand over', 'fleet', 'database']);
  });

  it('gives the runs back and cuts the connections when it is hurried', async () => {
    const hurry = new AbortController();
    const { promise: given, resolve: giveBack } = Promise.withResolvers<void>();
    const { promise: cut, resolve: closeConnections } = Promise.withResolvers<void>();
    const { all, done } = steps({
      finishRuns: () => given,
      giveRunsBack: giveBack,
      closePublic: () => cut,
      closePublicConnections: closeConnections,
    });
    const drained = drainControlPlane(all, { hurry: hurry.signal, log: silent });
    hurry.abort();
    await drained;
    assert.equal(done.at(-1), 'database');
  });

  it('waits for no step for ever', async () => {
    const hangs = () => new Promise<void>(() => undefined);
    const hanging = {
      finishRuns: hangs,
      finishDeliveries: hangs,
      closeRest: [hangs, async () => undefined],
    };
    const bounds = { finishMaxMs: 20, giveBackMaxMs: 20, deliverMaxMs: 20, restMaxMs: 20 };
    const { all, done } = steps(hanging);
    await drainControlPlane(all, { hurry: never, log: silent, ...bounds });
    assert.deepEqual(done, ['announce', 'hand over', 'public', 'registry']);
    const hurried = steps(hanging);
    const patient = { ...bounds, finishMaxMs: 3_600_000, deliverMaxMs: 3_600_000 };
    await drainControlPlane(hurried.all, { hurry: AbortSignal.abort(), log: silent, ...patient });
    assert.deepEqual(hurried.done, [
      'announce',
      'give back',
      'hand over',
      'public',
      'give deliveries back',
      'registry',
    ]);
  });

  it('ends within 150 s, whatever hangs', () => {
    // As the table of drain.ts adds it up.
    assert.ok(DRAIN_MS_MAX < 150_000);
  });

  it('that begins in a hurry gives back first', async () => {
    const { all, done } = steps();
    await drainControlPlane(all, { hurry: AbortSignal.abort(), log: silent });
    assert.deepEqual(done.slice(0, 3), ['announce', 'give back', 'finish']);
    assert.ok(done.indexOf('give deliveries back') < done.indexOf('deliveries'));
  });
});
