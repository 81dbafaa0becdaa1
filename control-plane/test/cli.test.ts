/** Needs: portal. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runCommand } from '@matting/core/run-command.ts';
import { CallbackSecrets, mailBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import {
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  running,
  runningOf,
  submitted,
} from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { migrationsOf } from '@matting/core/test/internals.ts';
import { dueMails, mailEnd } from '@matting/core/test/mails.ts';
import { insertMail } from '@matting/core/webhooks/outbox-store.ts';
import { signingKeyOf, signMessage } from '@matting/http/outgoing/webhook-signature.ts';
import { hashOfSecret } from '@matting/portal/session/secret.ts';
import { OPERATOR, placed } from '@matting/portal/test/orders.ts';
import { at } from '@matting/test-support/at.ts';
import { onDatabases, useTestDatabase } from '@matting/test-support/database.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { PACKAGES } from '../packages.ts';
import { onStores, storesOn } from './every-store.ts';
import { runCli } from './programs.ts';

const test = ava.serial;

const PROGRAM = path.resolve(import.meta.dirname, '../cli.ts');

/** As a new database gets them. */
const ALL = migrationsOf(PACKAGES).flatMap(series =>
  Object.keys(series.migrations('sqlite')).map(name =>
    series.package === undefined ? name : `${series.package}/${name}`,
  ),
);

const CALLBACK = {
  url: 'https://hooks.example.com/a-token-in-the-path',
  secret: Uint8Array.of(1),
  secretKeyId: 'k',
};
const END = { statusCode: 503, durationMs: 1 };

onStores(
  test,
  'the command line',
  (test, { dialect, databases, database, stores }) => {
    const run = (...args: string[]) => runCli({ MATTING_DATABASE_URL: databases.url() }, ...args);

    async function succeed(...args: string[]): Promise<string> {
      const ran = await run(...args);
      assert.deepEqual(
        [ran.code, ran.err.replace(/matting: the database may lose.*\n/, '')],
        [0, ''],
      );
      return ran.out;
    }

    async function refuse(message: RegExp, code: number, ...args: string[]): Promise<void> {
      const ran = await run(...args);
      assert.equal(ran.code, code, ran.err);
      assert.equal(ran.out, '');
      assert.match(ran.err, message);
      assert.ok(!ran.err.includes('    at '), 'no stack');
    }

    test('makes the first account once, and everything after by name', async t => {
      const first = ['bootstrap', '--account', 'default', '--credits', '20', '--json'];
      const made = JSON.parse(await succeed(...first));
      t.true(made.created);
      t.regex(made.api_key, /^mk_/);
      t.deepEqual(JSON.parse(await succeed(...first)), { created: false });
      assert.ok(typeof (await stores.apiKeys.authenticate(made.api_key)) === 'object');

      const key = JSON.parse(
        await succeed('keys', 'create', '--account', 'default', '--name', 'shop', '--json'),
      );
      t.true(typeof (await stores.apiKeys.authenticate(key.api_key)) === 'object');
      const listed = await succeed('keys', 'list', '--account', 'default', '--json');
      t.false(listed.includes(key.api_key));
      t.deepEqual(
        JSON.parse(listed).map(({ name }: { name: string }) => name),
        ['default', 'shop'],
      );
      t.regex(await succeed('keys', 'revoke', key.prefix), /was revoked at/);
      await refuse(/no such key/, 1, 'keys', 'revoke', 'mk_nobody000000');
    });

    test('says what a key may do, and gives it another secret', async t => {
      await succeed('accounts', 'create', 'keys');
      const created = await succeed(
        ...['keys', 'create', '--account', 'keys', '--expires-in', '30', '--cap', '500/day'],
        ...['--rate', '60', '--scopes', 'read,submit', '--networks', '192.0.2.0/24,::1'],
        ...['--models', 'isnet,best', '--json'],
      );
      const { api_key, prefix, ...key } = JSON.parse(created);
      t.deepEqual([key.cap.credits, key.cap.period, key.cap.used], [500, 'day', 0]);
      t.deepEqual([key.submissions_per_minute, key.scopes], [60, ['submit', 'read']]);
      t.deepEqual(key.networks, ['192.0.2.0/24', '::1/128']);
      t.deepEqual(key.models, ['isnet', 'best']);
      t.is(Date.parse(key.expires_at) - Date.parse(key.created_at), 30 * 86_400_000);

      const ending = ['keys', 'create', '--account', 'keys', '--expires-in', '30'];
      t.regex(await succeed(...ending), /The key expires at 20\d\d-\d\d-\d\dT.*Z\./);
      const free = ['--cap', 'none', '--networks', 'any'];
      const changed = JSON.parse(await succeed('keys', 'set', prefix, ...free, '--json'));
      t.deepEqual([changed.cap, changed.networks, changed.scopes.length], [null, null, 2]);
      t.is(changed.expires_at, key.expires_at, 'what is not named stays');
      const all = ['--scopes', 'all', '--rate', 'none', '--models', 'all', '--json'];
      const freed = JSON.parse(
        await succeed('keys', 'set', prefix, '--expires-in', 'never', ...all),
      );
      t.deepEqual(
        [freed.scopes.length, freed.submissions_per_minute, freed.models, freed.expires_at],
        [3, null, null, null],
      );

      const rotated = JSON.parse(await succeed('keys', 'rotate', prefix, '--json'));
      t.true(Date.parse(rotated.previous_secret_ends_at) > Date.parse(key.created_at));
      assert.ok('byPreviousSecret' in Object(await stores.apiKeys.authenticate(api_key)));
      assert.ok('apiKeyId' in Object(await stores.apiKeys.authenticate(rotated.api_key)));
      await succeed('keys', 'rotate', prefix, '--overlap', 'at-once');
      const other = storesOn(database);
      t.true('kind' in Object(await other.apiKeys.authenticate(rotated.api_key)));
      t.regex(await succeed('keys', 'revoke', prefix), /never used/);
      await refuse(/is revoked/, 1, 'keys', 'rotate', prefix);
      await refuse(/is revoked/, 1, 'keys', 'set', prefix, '--name', 'b');
    });

    test('invites people, and makes links that sign in', async t => {
      const name = `people ${dialect}`;
      await succeed('accounts', 'create', name);
      const invite = ['accounts', 'invite', name, 'Ann@Shop.example', '--role', 'owner'];
      const made = JSON.parse(await succeed(...invite, '--json'));
      t.is(made.hours, 168);
      const token = /^http:\/\/127\.0\.0\.1:8080\/account\/invitations\/([\w-]{43})$/.exec(
        made.url,
      );
      const link = await stores.links.find(hashOfSecret(token?.[1] ?? ''), 'invitation');
      t.deepEqual([link?.mail, link?.role], ['Ann@Shop.example', 'owner']);
      t.regex(
        await succeed('accounts', 'sign-in-link', name, 'ann@shop.example'),
        /\(member\), .* within 12 hours: {2}http:.*\/account\/links\/[\w-]{43}$/m,
      );
      await refuse(/ann@shop\.example/, 64, 'accounts', 'invite', name, 'ann');
      await refuse(/owner, member/, 64, 'accounts', 'invite', name, 'a@b.c', '--role', 'king');
      await refuse(/no account/, 1, 'accounts', 'invite', 'nobody', 'ann@shop.example');
      t.deepEqual(await dueMails(stores, 9), []);
      const key = Buffer.alloc(32, 7);
      const mailing = (secretsKey: Buffer, command: string, mail: string) =>
        runCli(
          {
            MATTING_DATABASE_URL: databases.url(),
            MATTING_SECRETS_KEY: secretsKey.toString('hex'),
            MATTING_SMTP_URL: 'smtps://mail.example',
            MATTING_MAIL_FROM: 'matting@shop.example',
          },
          ...['accounts', command, name, mail, '--json'],
        );
      const secrets = new CallbackSecrets(new SecretBox(key));
      for (const [command, mail] of [
        ['invite', 'bob@shop.example'],
        ['sign-in-link', 'ann@shop.example'],
      ] as const) {
        const sent = await mailing(key, command, mail);
        const letter = (await dueMails(stores, 9)).find(({ address }) => address === mail);
        assert.ok(letter, command);
        const opened = secrets.openText(letter.body, mailBody(letter.id));
        t.truthy(opened?.includes(JSON.parse(sent.out).url), command);
      }
      // No control plane could open what another key sealed.
      const other = await mailing(Buffer.alloc(32, 8), 'invite', 'bob@shop.example');
      t.deepEqual([other.code, other.out], [1, '']);
      t.regex(other.err, /not the key this database was last used with/);
      const first = ['bootstrap', '--account', name, '--credits', '5', '--json'];
      const again = JSON.parse(await succeed(...first, '--owner', 'owner@localhost'));
      t.regex(again.sign_in_link, /\/account\/links\//);
    });

    test('moves credits once a reference, and checks them', async t => {
      await succeed('accounts', 'create', 'shop');
      await refuse(/"shop" exists/, 1, 'accounts', 'create', 'shop');
      await refuse(/'name'/, 64, 'accounts', 'create', ' x');
      const grant = ['credits', 'grant', 'shop', '5', '--reference', 'order 1', '--json'];
      const credits = { available: 5, reserved: 0 };
      const reference = 'order 1';
      t.deepEqual(JSON.parse(await succeed(...grant)), { entered: true, reference, credits });
      t.deepEqual(JSON.parse(await succeed(...grant)), { entered: false, reference, credits });
      const more = ['credits', 'grant', 'shop', '6', '--reference', reference];
      await refuse(/used before with 5/, 1, ...more);
      await refuse(/only 5 credits/, 1, 'credits', 'revoke', 'shop', '6');
      await succeed('credits', 'revoke', 'shop', '2');
      t.deepEqual(JSON.parse(await succeed('credits', 'show', 'shop', '--json')), {
        available: 3,
        reserved: 0,
        charged: 0,
        granted: 5,
        revoked: 2,
      });
      t.regex(await succeed('credits', 'check'), /agrees/);
      const shop = database.kysely.updateTable('accounts').where('name', '=', 'shop');
      await shop.set({ available: 4 }).execute();
      const wrong = await run('credits', 'check', '--json');
      t.is(wrong.code, 1);
      t.is(JSON.parse(wrong.out).problems.length, 1);
      await shop.set({ available: 3 }).execute();
    });

    test('lists jobs and has one claimed again, unless it ended', async t => {
      const { account, job, claim } = await runningOf(stores, 2);
      const list = ['jobs', 'list', '--account', account];
      const listed = JSON.parse(await succeed(...list, '--json'));
      t.deepEqual([listed[0].job_id, listed[0].lease.holder], [job.id, claim.holder]);
      t.regex(await succeed(...list), new RegExp(`^JOB .*\n${job.id} +running `));
      const page = await succeed(...list, '--limit', '1');
      const after = / --after (\S+)\n$/.exec(page)?.[1];
      t.is(after, listed[0].cursor);
      t.notRegex(await succeed(...list, '--after', after!), new RegExp(job.id));
      const retried = JSON.parse(await succeed('jobs', 'retry', job.id, '--json'));
      const { holder } = claim;
      t.deepEqual(retried, { job_id: job.id, lease_ended: true, holder });
      t.regex(await succeed('jobs', 'retry', job.id), /no control plane holds/);
      const again = await claimed(stores, job);
      await stores.queue.fail(again, IMAGE_FAULT);
      await refuse(/has failed and cannot run again/, 1, 'jobs', 'retry', job.id);
      await refuse(/no job/, 1, 'jobs', 'retry', 'x');
      t.is((await succeed(...list)).trim().split('\n').length, 1, 'a head alone');
      t.regex(await succeed(...list, '--state', 'failed'), /PROCESSING_FAILED/);
      await refuse(/no account/, 1, 'jobs', 'list', '--account', 'nobody');
    });

    test('shows jobs and drains nodes', async t => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account, { sourceUrl: 'https://u:p@a.example/' }));
      const shown = await succeed('jobs', 'show', job.id, '--json');
      t.is(JSON.parse(shown).status, 'queued');
      t.false(shown.includes('a.example'), 'the source is its owner’s');
      await refuse(/no job/, 1, 'jobs', 'show', 'x');
      const node = { nodeId: 'n1', bootId: 'b', address: 'h:1', httpAddress: '', version: '1' };
      await stores.nodes.register(node, 60_000);
      const cause = 'its certificate has expired';
      const seen = { nodeId: 'n1', bootId: 'b', state: 'unreachable', cause, forMs: 0 } as const;
      await stores.sightings.note('replica-1', [seen], 60_000);
      t.regex(await succeed('nodes', 'list'), /^n1 +unreachable .* its certificate has expired$/m);
      await succeed('nodes', 'drain', 'n1');
      t.is(JSON.parse(await succeed('nodes', 'list', '--json'))[0].state, 'draining');
      await succeed('nodes', 'undrain', 'n1');
      await refuse(/no node/, 1, 'nodes', 'drain', 'n2');
    });

    for (const line of [
      'credit',
      'accounts create',
      'credits grant default 1.5',
      'bootstrap --account a --credits 0',
      'jobs list --state lost',
      'jobs list --limit 1001',
      'orders list --state lost',
      'orders list --limit 0',
      'webhooks list --status lost',
      'webhooks list --limit 1001',
      'webhooks retry',
      'webhooks listen --port 70000',
      'webhooks listen --status 99',
      'keys rotate mk_a --overlap 2h',
      ...['--expires-in 0', '--expires-in 4000', '--cap 0', '--cap 5/week', '--rate 1.5'].map(
        what => `keys create --account keys ${what}`,
      ),
      'keys create --account keys --scopes read,write',
      'keys create --account keys --networks 10.0.0.1/8',
      'keys create --account keys --models isnet,,best',
    ]) {
      test(`does not understand: ${line}`, async t => {
        await t.notThrowsAsync(refuse(/^(matting|error): .+\n/, 64, ...line.split(' ')));
      });
    }

    let accountId: string;

    async function ended(): Promise<string> {
      const { job, claim } = await running(stores, newJob(accountId, { callback: CALLBACK }));
      assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
      return job.id;
    }

    async function claimedOf(jobId: string, fence = 1) {
      const claim = { id: jobId, holder: 'r', fence };
      assert.ok(await stores.outbox.claim(claim, 1000));
      return claim;
    }

    test('webhooks › list shows how far each came, and of its URL the receiver alone', async t => {
      accountId = await fundedAccount(stores, 100);
      const jobId = await ended();
      await stores.outbox.retryLater(await claimedOf(jobId), END, 3_600_000);
      const { code, out } = await run('webhooks', 'list');
      t.is(code, 0);
      t.regex(out, new RegExp(`^${jobId}  job +pending  1 +503 .*hooks\\.example\\.com:443$`, 'm'));
      t.false(out.includes('a-token'));
      const json = await run('webhooks', 'list', jobId.toUpperCase(), '--json');
      const [row, ...more] = JSON.parse(json.out);
      t.deepEqual(more, []);
      t.deepEqual(
        [row.job_id, row.status, row.attempts, row.last_status_code, row.account_id],
        [jobId, 'pending', 1, 503, accountId],
      );
      t.false(json.out.includes('a-token'));
      t.deepEqual(
        JSON.parse((await run('webhooks', 'list', '--status', 'delivered', '--json')).out),
        [],
      );
      t.deepEqual(JSON.parse((await run('webhooks', 'list', randomUUID(), '--json')).out), []);
      const unanswered = { statusCode: null, error: 'timeout', durationMs: 1 };
      await stores.outbox.retryLater(await claimedOf(await ended()), unanswered, 3_600_000);
      t.regex((await run('webhooks', 'list')).out, /pending {2}1 +timeout /);
    });

    test('webhooks › retry makes the next attempt due, of a failed one too', async t => {
      const jobId = await ended();
      await stores.outbox.failed(await claimedOf(jobId), END, { eraseSecret: false });
      const { code, out } = await run('webhooks', 'retry', jobId, '--json');
      t.deepEqual([code, JSON.parse(out)], [0, { job_id: jobId, outcome: 'retried' }]);
      const [row] = await stores.outbox.list({ jobId, limit: 1 });
      t.is(row?.status, 'pending');
      await claimedOf(jobId, 2);
    });

    test('webhooks › retry says why not', async t => {
      const gone = await ended();
      await stores.outbox.failed(await claimedOf(gone), END, { eraseSecret: true });
      const delivered = await ended();
      await stores.outbox.delivered(await claimedOf(delivered), END);
      const plain = (await submitted(stores, newJob(accountId))).id;
      const open = (await submitted(stores, newJob(accountId, { callback: CALLBACK }))).id;
      for (const [job, why] of [
        [gone, /answered 410/],
        [delivered, /delivered before/],
        [plain, /callback_url/],
        [open, /still open/],
        [randomUUID(), /no such job/],
        ['nonsense', /no such job/],
      ] as const) {
        const { code, out, err } = await run('webhooks', 'retry', job);
        t.deepEqual([code, out], [1, '']);
        t.regex(err, why);
      }
    });

    async function put(recipient: string) {
      const mail = { id: randomUUID(), accountId: 'account', subject: 'low', body: 'text' };
      await insertMail(database, database.kysely, { ...mail, recipient });
      return { id: mail.id, holder: 'replica-1', fence: 1 };
    }

    async function waiting(recipient: string) {
      const claim = await put(recipient);
      assert.ok(await stores.outbox.claim(claim, HOUR_MS));
      assert.ok(await stores.outbox.retryLater(claim, mailEnd('ESOCKET'), HOUR_MS));
      return claim;
    }

    test('mails › retry sends what waits, as one attempt more, and leaves what is being sent', async t => {
      await database.kysely.deleteFrom('outbox').execute();
      const late = await waiting('late@example.com');
      const sending = await put('sending@example.com');
      t.truthy(await stores.outbox.claim(sending, HOUR_MS));
      const sent = await put('sent@example.com');
      t.truthy(await stores.outbox.claim(sent, HOUR_MS));
      t.truthy(await stores.outbox.delivered(sent, mailEnd()));
      t.deepEqual(await dueMails(stores, 10), []);
      const { code, out } = await run('mails', 'retry');
      t.deepEqual([code, out], [0, 'mails due now: 1\n']);
      const due = await dueMails(stores, 10);
      t.deepEqual(
        due.map(({ id, attempts }) => [id, attempts]),
        [[late.id, 0]],
      );
      const { out: again } = await run('mails', 'retry', '--json');
      t.deepEqual(JSON.parse(again), { retried: 0 });
      // The holder keeps its lease.
      t.truthy(await stores.outbox.delivered(sending, mailEnd()));
    });

    test('mails › retry is not bounded by what one statement changes', async t => {
      await database.kysely.deleteFrom('outbox').execute();
      const first = await waiting('first@example.com');
      const mails = database.kysely.selectFrom('outbox').selectAll();
      const row = at(await mails.where('id', '=', first.id).execute(), 0);
      for (let count = 0; count < 510; count += 10) {
        const rows = Array.from({ length: 10 }, () => ({ ...row, id: randomUUID() }));
        await database.kysely.insertInto('outbox').values(rows).execute();
      }
      const { out } = await run('mails', 'retry', '--json');
      t.deepEqual(JSON.parse(out), { retried: 511 });
      const due = await mails.where('next_attempt_at', '<=', Date.now()).execute();
      t.is(due.length, 511);
    });

    const orders = (...args: string[]) => run('orders', ...args);

    const json = async (...args: string[]) =>
      JSON.parse(await succeed('orders', ...args, '--json'));

    test('orders › are listed by state and account, in pages', async t => {
      const account = await fundedAccount(stores, 0);
      const first = await placed(stores, account);
      const second = await placed(stores, account);
      await stores.orders.cancel(account, first.id, OPERATOR);
      const [latest] = await json('list', '--account', account, '--limit', '1');
      const rest = await json('list', '--account', account, '--after', latest.cursor);
      const ids = [latest.order_id, ...rest.map((order: { order_id: string }) => order.order_id)];
      t.deepEqual(ids.sort(), [first.id, second.id].sort());
      const pending = await json('list', '--account', account, '--state', 'pending');
      t.deepEqual([pending.length, pending[0].order_id], [1, second.id]);
      t.deepEqual([pending[0].amount, pending[0].price], [5000, '50.00']);
      t.regex(
        (await orders('list')).out,
        new RegExp(`^${second.reference} +pending +2500 +50.00 CNY`, 'm'),
      );
      t.regex(
        (await orders('list', '--after', 'x')).err,
        /after must be the cursor of a listed order/,
      );
      t.regex((await orders('list', '--account', 'nobody')).err, /no account "nobody"/);
    });

    test('orders › are confirmed once, and with one payment', async t => {
      const account = await fundedAccount(stores, 0);
      const { id } = await placed(stores, account);
      for (const [order, reference, code] of [
        [id, 'bank-7', 0],
        [id, 'bank-7', 0],
        [id, 'bank-8', 1],
        [randomUUID(), 'bank-9', 1],
        [id, 'a b', 1],
      ] as const) {
        t.is((await orders('confirm', order, '--reference', reference)).code, code, reference);
      }
      t.is((await stores.ledger.balances(account))?.available, 2500);
      const shown = await json('show', id.toUpperCase());
      t.deepEqual([shown.state, shown.paid_by, shown.payment], ['paid', 'operator', 'bank-7']);
    });

    test('orders › are refunded in whole or in part, and say what could not be taken back', async t => {
      const account = await fundedAccount(stores, 0);
      const { id } = await placed(stores, account);
      t.is((await orders('refund', id)).code, 1, 'it is pending');
      await orders('confirm', id);
      const part = ['refund', id, '--amount', '12.50', '--reference', 're-1'];
      t.regex((await orders(...part)).out, /^12.50 CNY refunded: 625 credits revoked\n$/);
      for (const sum of ['-1', '1.234', 'all', '0']) {
        t.regex(
          (await orders('refund', id, `--amount=${sum}`)).err,
          /--amount must be a sum of CNY/,
        );
      }
      t.regex((await orders('refund', id, '--amount', '37.51')).err, /at most 37.50 CNY/);
      await stores.ledger.revoke(account, 1000, 'spent');
      const { claim } = await running(stores, newJob(account));
      const rest = await orders('refund', id);
      t.regex(rest.out, /^37.50 CNY refunded: 874 credits revoked\n1001 credits were spent/);
      t.regex((await orders('refund', id)).err, /refunded in full/);
      const { state, credits_not_revoked: left, refunds } = await json('show', id);
      t.deepEqual([state, left, refunds.length], ['refunded', 1001, 2]);
      t.truthy(await stores.queue.fail(claim, IMAGE_FAULT));
      const then = await json('show', id);
      t.deepEqual([then.credits_revoked, then.credits_revoked_later], [1500, 1]);
      t.is(then.credits_not_revoked, 1000);
      t.regex((await orders('show', id)).out, /^refund re-1: 12.50, 625 of 625 credits revoked$/m);
    });
  },
  { serverInCi: true },
);

onDatabases(test, 'a database not migrated', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { migrated: false });

  test('is migrated by migrate, and by no command that reads', async t => {
    const env = { MATTING_DATABASE_URL: databases.url() };
    const first = await runCli(env, 'accounts', 'list', '--json');
    t.is(first.code, 1);
    t.regex(first.err, /no (tables of a service in|database at) .*"matting migrate"/);
    t.deepEqual(JSON.parse((await runCli(env, 'migrate', '--json')).out), { migrations: ALL });
    const database = await databases.open();
    const last = ALL.filter(name => name.startsWith('portal/'))
      .at(-1)
      ?.slice('portal/'.length);
    await sql`delete from kysely_migration_portal where name = ${last}`.execute(database.kysely);
    const lacking = await runCli(env, 'accounts', 'list');
    t.is(lacking.code, 1);
    t.true(lacking.err.includes(`the database lacks portal/${last}: run`), lacking.err);
    t.deepEqual(JSON.parse((await runCli(env, 'migrate', '--json')).out), {
      migrations: [`portal/${last}`],
    });
    t.regex((await runCli(env, 'migrate')).out, /up to date/);
  });
});

test('webhooks listen says of each delivery whether its signature holds', async t => {
  const secret = `whsec_${Buffer.alloc(32, 5).toString('base64')}`;
  const lines: string[] = [];
  const ends = Promise.withResolvers<void>();
  const output = {
    out: (text: string) => void lines.push(text),
    err: (text: string) => t.fail(text),
    interrupted: () => ends.promise,
  };
  const args = ['webhooks', 'listen', '--port', '0', '--secret', secret, '--json'];
  const listening = runCommand(args, output, {}, PACKAGES);
  const next = async () => {
    await until(() => lines.length > 0, 'a line');
    return JSON.parse(lines.shift() ?? '');
  };
  const { callback_url, callback_secret } = await next();
  t.is(callback_secret, secret);
  const body = JSON.stringify({ type: 'matting.job.failed', job_id: 'j-1' });
  const timestampS = Math.floor(Date.now() / 1000);
  const message = { id: 'msg_j-1', timestampS, body: Buffer.from(body) };
  const send = async (sent: string) => {
    const headers = { ...signMessage(signingKeyOf(secret), message) };
    return (await fetch(callback_url, { method: 'POST', headers, body: sent })).status;
  };
  const told = async () => {
    const { job_id, type, signature_holds, repeat, answered } = await next();
    return [job_id, type, signature_holds, repeat, answered];
  };
  t.is(await send(body), 204);
  t.deepEqual(await told(), ['j-1', 'matting.job.failed', true, false, 204]);
  t.is(await send(body), 204);
  t.deepEqual(await told(), ['j-1', 'matting.job.failed', true, true, 204]);
  t.is(await send(`${body} `), 401);
  t.deepEqual(await told(), ['j-1', 'matting.job.failed', false, false, 401]);
  t.is(await send('no JSON'), 401);
  t.deepEqual(await told(), [null, null, false, false, 401]);
  ends.resolve();
  t.is(await listening, 0);
});

test('a command takes the file in the data directory when nothing else is said', async t => {
  const ran = await runCli({ MATTING_DATA_DIR: await temporaryFolder(t) }, 'migrate', '--json');
  t.deepEqual(JSON.parse(ran.out), { migrations: ALL });
});

test('a command waits for a database as long as it is told to', async t => {
  const place = path.join(await temporaryFolder(t), 'not-yet');
  writeFileSync(place, '');
  const env = { MATTING_DATABASE_URL: `sqlite:${path.join(place, 'matting.sqlite')}` };
  const late = await runCli(env, 'migrate', '--wait-s', '0');
  t.is(late.code, 1);
  t.notRegex(late.err, /waiting/);
  let err = '';
  const output = {
    out: () => undefined,
    err: (text: string) => {
      // After the first try the database can be opened.
      if (err === '') rmSync(place);
      err += text;
    },
  };
  t.is(await runCommand(['migrate', '--wait-s', '60'], output, env, PACKAGES), 0);
  t.regex(err, /^matting: waiting: the database.*\n$/);
  t.is((await runCli(env, 'migrate', '--wait-s', '1.5')).code, 64);
});

test('a command names what is wrong, without the password', async t => {
  const unreachable = await runCli(
    { MATTING_DATABASE_URL: 'mysql://root:s3cret@127.0.0.1:1/db' },
    'accounts',
    'list',
  );
  t.is(unreachable.code, 1);
  t.regex(
    unreachable.err,
    /^matting: the database mysql:\/\/root@127\.0\.0\.1:1\/db cannot be opened: .*ECONNREFUSED.*\n$/,
  );
  const wrong = await runCli({ MATTING_DATABASE_URL: 's3cret' }, 'accounts', 'list');
  t.is(wrong.code, 78);
  t.regex(wrong.err, /MATTING_DATABASE_URL/);
  t.false(`${unreachable.err}${wrong.err}`.includes('s3cret'));
});

test('the program ends quietly where its output is not read', async t => {
  const env = { ...STARTED_ENV, MATTING_DATA_DIR: await temporaryFolder(t) };
  t.is((await runCli(env, 'migrate')).code, 0);
  const child = spawn(process.execPath, [PROGRAM, 'accounts', 'create', 'unread'], { env });
  // As `head` does once it has its lines.
  child.stdout.destroy();
  let errors = '';
  child.stderr.on('data', text => {
    errors += text;
  });
  const [code] = await once(child, 'close');
  t.deepEqual({ code, errors }, { code: 0, errors: '' });
  const listed = await runCli(env, 'accounts', 'list', '--json');
  t.regex(listed.out, /"unread"/);
});
