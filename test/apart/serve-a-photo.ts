/** Costs one credit, on the named SQLite database. */
import assert from 'node:assert/strict';
import { assertBalanced } from '../../control-plane/core/test/fixtures.ts';
import { pictureBody } from '../../control-plane/core/test/support/replicas.ts';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { SILENT_LOG } from '../support/database.ts';

const [file] = process.argv.slice(2);
assert.ok(file, 'the file of the database');
const url = `sqlite:${file}`;
const opened: { close(): Promise<void> }[] = [];
const replicas = await Replicas.open('sqlite', {
  replicas: 1,
  database: {
    dialect: 'sqlite',
    url,
    open: async () => {
      const database = await openDatabase(url, { log: SILENT_LOG, create: true });
      opened.push(database);
      return database;
    },
    close: async () => {
      for (const database of opened) await database.close();
    },
  },
});
await replicas.addNode();
const caller = await replicas.createCaller(2);
const answer = await replicas.post(caller, pictureBody());
assert.equal(answer.status, 200, JSON.stringify(answer.body));
assert.equal(answer.headers.get('x-credits-charged'), '1');
const balances = await replicas.stores.ledger.balances(caller.accountId);
assert.deepEqual([balances?.available, balances?.reserved], [1, 0]);
await assertBalanced(replicas.stores);
await replicas.close();
