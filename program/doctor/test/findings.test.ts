import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { NO_TLS, TestAuthority } from '@matting/test-support/certificates.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import type { TlsSettings } from '../../tls/tls-settings.ts';
import { failure, ok, pageOf, runCheck, warning } from '../findings.ts';
import { tlsFindings } from '../program-findings.ts';
import { SecretsOut, secretsOfFiles } from '../secrets.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

test('findings › what others said begins no line of a page, and says nothing to the terminal', t => {
  const lines = pageOf([
    warning('node \u001b[2J', '1.0\nok       nodes\u009b2J', 'see\r\nit'),
    ok('nodes', '3'),
  ]);
  t.deepEqual(lines, [
    'warning  node  [2J  1.0 ok       nodes 2J',
    '                    -> see it',
    'ok       nodes      3',
    '1 ok, 1 warning, 0 failures',
  ]);
});

const CHECK = { subject: 'a', advice: 'do this' };

test('findings › a check that throws, or never answers, is a failure with its advice', async t => {
  const thrown = await runCheck(CHECK, async () => {
    throw new Error('outer', { cause: new Error('line 1\nline 2') });
  });
  t.deepEqual(thrown, [failure('a', 'outer: line 1; line 2', 'do this')]);
  const advice = (found: string) => `mend it (${found})`;
  const hung = await runCheck(
    { subject: 'b', advice, msMax: 20 },
    () => new Promise(() => undefined),
  );
  t.deepEqual(hung, [failure('b', 'no answer within 0.02 s', 'mend it (no answer within 0.02 s)')]);
});

test('findings › what a check logs as a warning is one, beside what it found', async t => {
  const found = await runCheck(CHECK, async log => {
    log.info('nothing to do about');
    log.warn({ file: 'x', err: new Error('gone') }, 'a file is away');
    return 'the rest is there';
  });
  const away = warning('a', 'a file is away: file x, gone', 'do this');
  t.deepEqual(found, [away, ok('a', 'the rest is there')]);
  t.deepEqual(await runCheck(CHECK, async () => undefined), []);
});

const KEY = '0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f1';
const ENV = {
  MATTING_SECRETS_KEY: KEY,
  MATTING_NODE_TOKEN: 'a "quoted\\ token',
  THEIR_TOKENS: 'shop:first-secret-token,desk:second-secret-token',
  MATTING_DATABASE_URL: 'mysql://matting:p%40ss%2Fword@database.internal:3306/matting',
  MATTING_SMTP_URL: 'smtps://mailer:mail-password@mail.example:465',
  MATTING_PORT: '8080',
  MATTING_QUALITY: 'standard',
  AWS_ACCESS_KEY_ID: 'standard',
  AWS_SECRET_ACCESS_KEY: 'aws/secret+key',
  HTTPS_PROXY: 'http://me:proxy-password@proxy.example:3128',
  MATTING_TLS_KEY_FILE: '/etc/matting/key.pem',
};

test('secrets › leaves out every token of a file that the environment names', async t => {
  const file = path.join(directory, 'caller-tokens');
  await writeFile(file, 'shop:first-secret-token,desk:second-secret-token\nlab:third-secret-token');
  const more = await secretsOfFiles({ MATTING_NODE_CALLER_TOKENS_FILE: file });
  const text = new SecretsOut({}, more).of('first-secret-token third-secret-token');
  t.notRegex(text, /secret-token/);
});

test('secrets › leaves out every secret of the environment, however it is written', t => {
  const secretsOut = new SecretsOut(ENV, ['the content of a file']);
  const planted = [
    KEY,
    KEY.toUpperCase(),
    Buffer.from(KEY, 'hex').toString('base64'),
    'a "quoted\\ token',
    JSON.stringify('a "quoted\\ token').slice(1, -1),
    'first-secret-token',
    'second-secret-token',
    'p%40ss%2Fword',
    'p@ss/word',
    'mail-password',
    'aws/secret+key',
    encodeURIComponent('aws/secret+key'),
    'proxy-password',
    'the content of a file',
  ];
  for (const secret of planted) {
    const text = secretsOut.of(`before ${secret} after`);
    t.false(text.includes(secret), secret);
    t.regex(text, /^before .*\[left out\].* after$/);
  }
});

test('secrets › leaves everything else as it is', t => {
  const text =
    'database.internal:3306 matting standard 8080 /etc/matting/key.pem smtps mail.example';
  t.is(new SecretsOut(ENV).of(text), text);
  t.is(new SecretsOut({}).of(text), text);
  const named = { MATTING_DATABASE_URL: 'mysql://matting:matting@127.0.0.1/matting' };
  t.is(new SecretsOut(named).of(text), text);
});

let settings: TlsSettings;
const at = (name: string) => path.join(directory, name);

test.before(async () => {
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('node');
  await writeFile(at('cert.pem'), cert + authority.cert);
  await writeFile(at('key.pem'), key);
  await writeFile(at('other.pem'), authority.issue('other').key);
  await writeFile(at('ca.pem'), authority.cert);
  const identity = { certFile: at('cert.pem'), keyFile: at('key.pem') };
  settings = { ...NO_TLS, identity, serverCaFile: at('ca.pem') };
});

const statuses = async (given: TlsSettings) =>
  (await tlsFindings(given)).map(({ status }) => status);

test('TLS › is ok where no TLS is asked for', async t => {
  t.deepEqual(await statuses(NO_TLS), ['ok']);
});

test('TLS › warns a fortnight before the end, and says when that is', async t => {
  const found = await tlsFindings(settings);
  t.deepEqual(
    found.map(({ status }) => status),
    ['warning', 'warning', 'ok'],
  );
  t.regex(found[0]?.found ?? '', /^a certificate expires soon.*file MATTING_TLS_CERT_FILE/);
  t.regex(found[2]?.found ?? '', /^MATTING_TLS_CERT_FILE expires in 0 days, MATTING_TLS_SERVER_CA/);
});

test('TLS › fails where files do not fit together, and names the variable', async t => {
  const identity = { certFile: at('cert.pem'), keyFile: at('other.pem') };
  const [finding, ...more] = await tlsFindings({ ...settings, identity });
  t.is(finding?.status, 'failure');
  t.regex(finding?.found ?? '', /^MATTING_TLS_KEY_FILE: is not the key/);
  t.deepEqual(more, []);
});
