/** What a doctor never prints, and which secrets it calls weak. */
import { randomBytes } from 'node:crypto';
import test from 'ava';
import { weaknessOf, weaknessOfBytes } from '../secret-strength.ts';
import { SecretsOut } from '../secrets-out.ts';

const KEY = '0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f1';
const ENV = {
  MATTING_SECRETS_KEY: KEY,
  MATTING_NODE_TOKEN: 'a "quoted\\ token',
  MATTING_NODE_CALLER_TOKENS: 'shop:first-secret-token,desk:second-secret-token',
  MATTING_DATABASE_URL: 'mysql://matting:p%40ss%2Fword@database.internal:3306/matting',
  MATTING_SMTP_URL: 'smtps://mailer:mail-password@mail.example:465',
  MATTING_PORT: '8080',
  MATTING_QUALITY: 'standard',
  AWS_SECRET_ACCESS_KEY: 'aws/secret+key',
  HTTPS_PROXY: 'http://me:proxy-password@proxy.example:3128',
  MATTING_TLS_KEY_FILE: '/etc/matting/key.pem',
};

test('leaves out every secret of the environment, however it is written', t => {
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

test('leaves everything else as it is', t => {
  const text =
    'database.internal:3306 matting standard 8080 /etc/matting/key.pem smtps mail.example';
  t.is(new SecretsOut(ENV).of(text), text);
  t.is(new SecretsOut({}).of(text), text);
});

test('calls weak what is short, repeats itself, or stands in an example', t => {
  for (const weak of [
    'aaaaaaaaaaaaaaaaaaaaaaaa',
    'ab'.repeat(32),
    'A-LONG-RANDOM-TOKEN',
    '12345678901234567890',
  ]) {
    t.truthy(weaknessOf(weak), weak);
    t.true(!weaknessOf(weak)?.includes(weak));
  }
  t.truthy(weaknessOfBytes(Buffer.alloc(32, 'ab')));
});

test('finds nothing against what was made at random', t => {
  for (let times = 0; times < 1000; times += 1) {
    const bytes = randomBytes(32);
    t.is(weaknessOfBytes(bytes), undefined);
    t.is(weaknessOf(bytes.toString('hex')), undefined);
    t.is(weaknessOf(bytes.toString('base64url')), undefined);
    t.is(weaknessOf(randomBytes(24).toString('base64url')), undefined);
  }
});
