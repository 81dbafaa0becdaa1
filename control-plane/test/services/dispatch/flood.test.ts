/** What many submissions at once cost the database while no node can take them. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { ScriptedNode } from '../../nodes/scripted-node.ts';
import { Harness, until } from './harness.ts';

const SUBMISSIONS = 50;
/** The poll, and the reports of the node, whose room may have changed. */
const ROUNDS_A_SECOND_MAX = 4;

it('a flood costs no round for each, and no job is forgotten', async () => {
  const harness = await Harness.open();
  try {
    const opened = Promise.withResolvers<void>();
    const node = await ScriptedNode.start({
      imagesMax: 1,
      script: async exchange => {
        exchange.admit();
        await exchange.receive();
        await opened.promise;
        exchange.fail('PROCESSING_FAILED');
      },
    });
    await harness.join(node);
    let rounds = 0;
    const { listClaimable } = harness.stores.jobs;
    const counted: typeof listClaimable = (limit, lanes) => {
      rounds += 1;
      return listClaimable(limit, lanes);
    };
    await harness.startReplica({ jobs: { ...harness.stores.jobs, listClaimable: counted } });
    const ids = [await harness.submit()];
    await until(() => node.headers.length === 1, 'the first attempt');
    const before = rounds;
    const startedAtMs = performance.now();
    for (let count = 0; count < SUBMISSIONS; count++) ids.push(await harness.submit());
    const seconds = (performance.now() - startedAtMs) / 1000;
    const during = rounds - before;
    assert.ok(during <= 2 + ROUNDS_A_SECOND_MAX * seconds, `${during} rounds in ${seconds} s`);
    opened.resolve();
    for (const id of ids) assert.equal((await harness.untilFinal(id)).state, 'failed');
  } finally {
    await harness.close();
  }
});
