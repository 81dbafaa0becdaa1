/** The operator's commands: what they print, and what they exit with. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { onDatabases, useTestDatabase } from '../../../test/support/database.ts';
import { runCommand } from '../../src/cli/program.ts';
import { CallbackSecrets, mailBody } from '../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../src/secrets/secret-box.ts';
import { hashOfSecret } from '../../src/services/people/sign-in.ts';
import { dueMails } from '../store/alerts-fixtures.ts';
import {
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  onStores,
  running,
  storesOn,
  submitted,
} from '../store/fixtures.ts';
import { type Env, type Ran, runCli } from '../support/cli.ts';

const test = ava.serial;

const PROGRAM = path.resolve(import.meta.dirname, '../../src/cli/main.ts');

/** All of them, as a new database gets them. */
const MIGRATIONS = readdirSync(
  path.resolve(import.meta.dirname, '../../src/store/database/migrations'),
)
  .filter(file => /^\d{4}-/.test(file))
  .map(file => path.basename(file, '.ts'))
  .sort();

/** The program itself, as a process. */
function runProgram(env: Env, ...args: string[]): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const options = { env: { PATH: process.env.PATH, ...env } };
    execFile(process.execPath, [PROGRAM, ...args], options, (error, out, err) => {
      if (error && typeof error.code !== 'number') reject(error);
      else resolve({ code: typeof error?.code === 'number' ? error.code : 0, out, err });
    });
  });
}

onStores(test, 'the command line', (test, { dialect, databases, database, stores }) => {
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
    t.regex(await succeed('keys', 'revoke', key.prefix), /revoked since/);
    await refuse(/no such key/, 1, 'keys', 'revoke', 'mk_nobody000000');
  });

  test('says what a key may do, and gives it another secret', async t => {
    await succeed('accounts', 'create', 'keys');
    const created = await succeed(
      ...['keys', 'create', '--account', 'keys', '--expires-in', '30', '--cap', '500/day'],
      ...['--rate', '60', '--scopes', 'read,submit', '--networks', '192.0.2.0/24,::1', '--json'],
    );
    const { api_key, prefix, ...key } = JSON.parse(created);
    t.deepEqual([key.cap.credits, key.cap.period, key.cap.used], [500, 'day', 0]);
    t.deepEqual([key.submissions_per_minute, key.scopes], [60, ['submit', 'read']]);
    t.deepEqual(key.networks, ['192.0.2.0/24', '::1/128']);
    t.is(Date.parse(key.expires_at) - Date.parse(key.created_at), 30 * 86_400_000);

    const list = await succeed('keys', 'list', '--account', 'keys');
    t.regex(list, /cap 0 of 500\/day; 60\/min; submit\+read; from 192\.0\.2\.0\/24,::1\/128/);
    const free = ['--cap', 'none', '--networks', 'any'];
    const changed = JSON.parse(await succeed('keys', 'set', prefix, ...free, '--json'));
    t.deepEqual([changed.cap, changed.networks, changed.scopes.length], [null, null, 2]);
    t.is(changed.expires_at, key.expires_at, 'what is not named stays');
    const freed = await succeed(
      ...['keys', 'set', prefix, '--scopes', 'all', '--rate', 'none', '--expires-in', 'never'],
    );
    t.regex(freed, /expires: never\nmay: whatever its account may/);

    const rotated = JSON.parse(await succeed('keys', 'rotate', prefix, '--json'));
    t.true(Date.parse(rotated.previous_secret_ends_at) > Date.parse(key.created_at));
    assert.ok('byPreviousSecret' in Object(await stores.apiKeys.authenticate(api_key)));
    assert.ok('apiKeyId' in Object(await stores.apiKeys.authenticate(rotated.api_key)));
    const atOnce = await succeed('keys', 'rotate', prefix, '--overlap', 'at-once');
    t.regex(atOnce, /^mk_\w+\nKeep it.*\nThe old secret has ended\.\n$/);
    const other = storesOn(database);
    t.true('kind' in Object(await other.apiKeys.authenticate(rotated.api_key)));
    t.regex(await succeed('keys', 'revoke', prefix), /last used never/);
    await refuse(/is revoked/, 1, 'keys', 'rotate', prefix);
    await refuse(/is revoked/, 1, 'keys', 'set', prefix, '--name', 'b');
  });

  test('refuses what no key may have', async t => {
    for (const [option, value, said] of [
      ['--expires-in', '0', /1 to 3650/],
      ['--expires-in', '4000', /or never/],
      ['--cap', '0', /credits/],
      ['--cap', '5/week', /total, day, month/],
      ['--rate', '1.5', /1 to 1000000/],
      ['--scopes', 'read,write', /submit, read, account/],
      ['--networks', '10.0.0.1/8', /"10\.0\.0\.1\/8" is no network/],
    ] as const) {
      await refuse(said, 64, 'keys', 'create', '--account', 'keys', option, value);
    }
    await t.notThrowsAsync(refuse(/at-once, 1h/, 64, 'keys', 'rotate', 'mk_a', '--overlap', '2h'));
  });

  test('invites people, and makes links that sign in', async t => {
    const name = `people ${dialect}`;
    await succeed('accounts', 'create', name);
    const invite = ['accounts', 'invite', name, 'Ann@Shop.example', '--role', 'owner'];
    const made = JSON.parse(await succeed(...invite, '--json'));
    t.is(made.hours, 168);
    const token = /^http:\/\/127\.0\.0\.1:8080\/account\/invitations\/([\w-]{43})$/.exec(made.url);
    const link = await stores.links.find(hashOfSecret(token?.[1] ?? ''), 'invitation');
    t.deepEqual([link?.mail, link?.role], ['Ann@Shop.example', 'owner']);
    t.regex(
      await succeed('accounts', 'sign-in-link', name, 'ann@shop.example'),
      /\(member\), once, within 12 hours: {2}http:.*\/account\/links\/[\w-]{43}$/m,
    );
    await refuse(/a mail address/, 64, 'accounts', 'invite', name, 'ann');
    await refuse(/one of owner/, 64, 'accounts', 'invite', name, 'a@b.c', '--role', 'king');
    await refuse(/no account/, 1, 'accounts', 'invite', 'nobody', 'ann@shop.example');
    t.deepEqual(await dueMails(stores, 9), []);
    const key = Buffer.alloc(32, 7);
    const mailing = (secretsKey: Buffer) =>
      runCli(
        {
          MATTING_DATABASE_URL: databases.url(),
          MATTING_SECRETS_KEY: secretsKey.toString('hex'),
          MATTING_SMTP_URL: 'smtps://mail.example',
          MATTING_MAIL_FROM: 'matting@shop.example',
        },
        ...['accounts', 'invite', name, 'bob@shop.example', '--json'],
      );
    const sent = await mailing(key);
    const [letter] = await dueMails(stores, 9);
    assert.ok(letter);
    t.is(letter.address, 'bob@shop.example');
    const opened = new CallbackSecrets(new SecretBox(key)).openText(
      letter.body,
      mailBody(letter.id),
    );
    t.truthy(opened?.includes(JSON.parse(sent.out).url));
    // No control plane would open what another key sealed.
    const other = await mailing(Buffer.alloc(32, 8));
    t.deepEqual([other.code, other.out], [1, '']);
    t.regex(other.err, /not the key this database was last used with/);
    const first = ['bootstrap', '--account', name, '--credits', '5', '--json'];
    const again = JSON.parse(await succeed(...first, '--owner', 'owner@localhost'));
    t.regex(again.sign_in_link, /\/account\/links\//);
  });

  test('moves credits once a reference, and checks them', async t => {
    await succeed('accounts', 'create', 'shop');
    await refuse(/already/, 1, 'accounts', 'create', 'shop');
    const grant = ['credits', 'grant', 'shop', '5', '--reference', 'order 1', '--json'];
    const credits = { available: 5, reserved: 0 };
    const reference = 'order 1';
    t.deepEqual(JSON.parse(await succeed(...grant)), { entered: true, reference, credits });
    t.deepEqual(JSON.parse(await succeed(...grant)), { entered: false, reference, credits });
    const more = ['credits', 'grant', 'shop', '6', '--reference', reference];
    await refuse(/entered before with 5/, 1, ...more);
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
    const account = await fundedAccount(stores, 2);
    const { job, claim } = await running(stores, newJob(account));
    const list = ['jobs', 'list', '--account', account];
    const listed = JSON.parse(await succeed(...list, '--json'));
    t.deepEqual([listed[0].job_id, listed[0].lease.holder], [job.id, claim.holder]);
    t.regex(await succeed(...list), new RegExp(`^JOB .*\n${job.id} +running `));
    const page = await succeed(...list, '--limit', '1');
    const after = /\nmore: --after (\S+)\n$/.exec(page)?.[1];
    t.is(after, listed[0].cursor);
    t.notRegex(await succeed(...list, '--after', after!), new RegExp(job.id));
    const retried = JSON.parse(await succeed('jobs', 'retry', job.id, '--json'));
    const { holder } = claim;
    t.deepEqual(retried, { job_id: job.id, lease_ended: true, holder });
    t.regex(await succeed('jobs', 'retry', job.id), /no replica holds/);
    const again = await claimed(stores, job);
    await stores.jobs.fail(again, IMAGE_FAULT);
    await refuse(/has failed: .* cannot run again/, 1, 'jobs', 'retry', job.id);
    await refuse(/no job/, 1, 'jobs', 'retry', 'x');
    t.is((await succeed(...list)).trim().split('\n').length, 1, 'a head alone');
    t.regex(await succeed(...list, '--state', 'failed'), /PROCESSING_FAILED/);
    await refuse(/no account/, 1, 'jobs', 'list', '--account', 'nobody');
    await refuse(/Allowed choices/, 64, 'jobs', 'list', '--state', 'lost');
    await refuse(/1 to 1000/, 64, 'jobs', 'list', '--limit', '1001');
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
    await succeed('nodes', 'drain', 'n1');
    t.is(JSON.parse(await succeed('nodes', 'list', '--json'))[0].state, 'draining');
    await succeed('nodes', 'undrain', 'n1');
    await refuse(/no node/, 1, 'nodes', 'drain', 'n2');
  });

  test('says in a line what it does not understand', async t => {
    await refuse(/unknown command/, 64, 'credit');
    await refuse(/missing required argument/, 64, 'accounts', 'create');
    await refuse(/whole number/, 64, 'credits', 'grant', 'default', '1.5');
    await refuse(/whole number/, 64, 'bootstrap', '--account', 'a', '--credits', '0');
    await refuse(/a name has/, 64, 'accounts', 'create', ' x');
    await t.notThrowsAsync(
      refuse(/no account "nobody"/, 1, 'keys', 'create', '--account', 'nobody'),
    );
  });
});

onDatabases(test, 'a database not migrated', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { migrated: false });

  test('is migrated by any command where it is a local file, otherwise by migrate', async t => {
    const env = { MATTING_DATABASE_URL: databases.url() };
    const first = await runCli(env, 'accounts', 'list', '--json');
    if (dialect === 'mysql') {
      t.is(first.code, 1);
      t.regex(first.err, /0001-baseline.*migrate/);
      t.deepEqual(JSON.parse((await runCli(env, 'migrate', '--json')).out), {
        migrations: MIGRATIONS,
      });
    } else {
      t.is(first.out, '[]\n');
    }
    t.regex((await runCli(env, 'migrate')).out, /up to date/);
  });
});

let directory: string;
test.before(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'matting-cli-'));
});
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

test('the program itself › takes the file in the data directory when nothing else is said', async t => {
  const ran = await runProgram(
    { MATTING_DATA_DIR: path.join(directory, 'data') },
    'migrate',
    '--json',
  );
  t.deepEqual(JSON.parse(ran.out), { migrations: MIGRATIONS });
});

test('the program itself › waits for a database as long as it is told to', async t => {
  const place = path.join(directory, 'not-yet');
  writeFileSync(place, '');
  const env = { MATTING_DATABASE_URL: `sqlite:${path.join(place, 'matting.sqlite')}` };
  const late = await runCli(env, 'migrate', '--wait-s', '0');
  t.is(late.code, 1);
  t.notRegex(late.err, /waiting/);
  let err = '';
  const output = {
    out: () => undefined,
    err: (text: string) => {
      // It has tried once: from now on the database can be opened.
      if (err === '') rmSync(place);
      err += text;
    },
  };
  t.is(await runCommand(['migrate', '--wait-s', '60'], output, env), 0);
  t.regex(err, /^matting: waiting: the database.*\n$/);
  t.is((await runCli(env, 'migrate', '--wait-s', '1.5')).code, 64);
});

test('the program itself › names what is wrong, without the password', async t => {
  const unreachable = await runProgram(
    { MATTING_DATABASE_URL: 'mysql://root:s3cret@127.0.0.1:1/db' },
    'accounts',
    'list',
  );
  t.is(unreachable.code, 1);
  t.regex(unreachable.err, /^matting: the database cannot be opened: .*ECONNREFUSED.*\n$/);
  const wrong = await runProgram({ MATTING_DATABASE_URL: 's3cret' }, 'accounts', 'list');
  t.is(wrong.code, 78);
  t.regex(wrong.err, /MATTING_DATABASE_URL/);
  t.false(`${unreachable.err}${wrong.err}`.includes('s3cret'));
});

test('the program itself › ends quietly where its output is not read', async t => {
  const env = { PATH: process.env.PATH, MATTING_DATA_DIR: path.join(directory, 'unread') };
  const child = spawn(process.execPath, [PROGRAM, 'accounts', 'create', 'unread'], { env });
  // As `head` does when it has its lines.
  child.stdout.destroy();
  let errors = '';
  child.stderr.on('data', text => {
    errors += text;
  });
  const [code] = await once(child, 'close');
  t.deepEqual({ code, errors }, { code: 0, errors: '' });
  const listed = await runCli(env as Record<string, string>, 'accounts', 'list', '--json');
  t.regex(listed.out, /"unread"/);
});
