/** The simulations' queue passes the contract of the real one. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { MemoryQueue } from '../../bench/dispatch-simulator/memory-queue.ts';
import { storedInput } from '../../control-plane/core/test/fixtures.ts';
import { testQueue } from '../../control-plane/core/test/queue.contract.ts';

const queue = new MemoryQueue(Date.now);

testQueue(ava.serial, () => ({
  queue,
  account: async () => randomUUID(),
  find: async jobId => queue.find(jobId)!,
  async add({ model = null, ...asked }, ageMs) {
    const id = randomUUID();
    const input = asked.sourceUrl === undefined ? storedInput(id) : null;
    const job = { id, outputFormat: 'png', input, createdAtMs: Date.now() - ageMs } as const;
    return queue.add({ ...job, ...asked, model });
  },
}));
