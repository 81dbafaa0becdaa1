/** What a replica remembers of the lanes of the queue. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type JobLane, KnownLanes } from '../../../src/domain/dispatch/job-turns.ts';

const NONE = { accounts: new Map(), apiKeys: new Map() };

describe('known lanes', () => {
  const lane = (apiKeyId: string): JobLane => ({
    needsDownload: true,
    class: 'async',
    accountId: 'a',
    apiKeyId,
    firstQueueAtMs: 1,
    readAtMs: 2,
  });
  const job = (apiKeyId: string) => ({
    state: 'accepted' as const,
    class: 'async' as const,
    accountId: 'a',
    apiKeyId,
    createdAtMs: 1,
    readAtMs: 1,
  });
  const keysOf = (known: KnownLanes) => known.choose(NONE).lanes.map(({ apiKeyId }) => apiKeyId);

  it('are asked for at first and when they are outdated', () => {
    const known = new KnownLanes();
    assert.ok(known.outdated);
    known.update([lane('1')]);
    assert.ok(!known.outdated);
    known.outdate();
    assert.ok(known.outdated);
  });

  it('are forgotten when nothing is found in them', () => {
    const known = new KnownLanes();
    known.update([lane('1'), lane('2')]);
    const { lanes } = known.choose(NONE);
    known.listed(lanes, [job('2')], []);
    assert.deepEqual(keysOf(known), ['2']);
  });

  it('are kept where hosts were passed over, whose jobs are not listed', () => {
    const known = new KnownLanes();
    known.update([lane('1'), lane('2')]);
    const [first, second] = known.choose(NONE).lanes;
    assert.ok(first !== undefined && second !== undefined);
    assert.ok(known.listed([{ ...first, exceptHosts: ['slow'] }, second], [], []));
    assert.deepEqual(keysOf(known), ['1']);
    assert.ok(!known.listed([{ ...first, exceptHosts: ['slow'] }], [], []));
    assert.ok(known.listed([first], [], []));
    assert.deepEqual(keysOf(known), []);
  });

  it('are left out where nothing of them could begin, and not forgotten', () => {
    const known = new KnownLanes();
    known.update([lane('1'), lane('2')]);
    const { lanes, all } = known.choose(NONE, ({ apiKeyId }) => apiKeyId !== '1');
    assert.deepEqual([lanes.map(({ apiKeyId }) => apiKeyId), all], [['2'], true]);
    known.listed(lanes, [], []);
    assert.deepEqual(keysOf(known), ['1']);
  });

  it('are kept where a job came during the round', () => {
    const known = new KnownLanes();
    known.update([lane('1')]);
    const { lanes } = known.choose(NONE);
    known.add(job('1'));
    known.add(job('3'));
    known.listed(lanes, [], []);
    assert.deepEqual(keysOf(known), ['1', '3']);
  });

  it('go behind the others where nothing of them found room', () => {
    const known = new KnownLanes();
    known.update(Array.from({ length: 40 }, (_, index) => lane(String(index))));
    const first = known.choose(NONE);
    assert.equal(first.all, false);
    known.listed(
      first.lanes,
      first.lanes.map(({ apiKeyId }) => job(apiKeyId)),
      [],
    );
    const second = keysOf(known);
    for (let index = 32; index < 40; index += 1) assert.ok(second.includes(String(index)));
  });
});
