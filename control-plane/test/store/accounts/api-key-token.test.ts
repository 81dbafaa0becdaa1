import test from 'ava';
import {
  apiKeyIdOf,
  createApiKeyToken,
  hashSecret,
  parseApiKeyToken,
  secretMatches,
} from '../../../src/store/accounts/api-key-token.ts';

test('any single changed character is noticed without a database', t => {
  const { text } = createApiKeyToken();
  for (let at = 0; at < text.length; at++) {
    const changed = text.slice(0, at) + (text[at] === 'a' ? 'b' : 'a') + text.slice(at + 1);
    t.is(parseApiKeyToken(changed), undefined, `at ${at}`);
  }
  const [one, two] = [text.slice(0, 20), text.slice(20)];
  for (const wrong of [one, two, two + one, ` ${text}`, `${text}\n`, text.replaceAll('_', '-')]) {
    t.is(parseApiKeyToken(wrong), undefined);
  }
});

test('keys have the documented form and are never the same', t => {
  const tokens = Array.from({ length: 500 }, () => createApiKeyToken());
  for (const token of tokens) {
    t.regex(token.text, /^mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
    t.deepEqual(parseApiKeyToken(token.text), { id: token.id, secret: token.secret });
  }
  t.is(new Set(tokens.map(({ id }) => id)).size, 500);
  t.is(new Set(tokens.map(({ secret }) => secret)).size, 500);
});

test('a secret matches its own hash alone', t => {
  const { secret } = createApiKeyToken();
  t.true(secretMatches(secret, hashSecret(secret)));
  t.false(secretMatches(secret, hashSecret(`${secret}0`)));
  t.false(secretMatches(secret, ''));
  t.false(secretMatches(secret, 'no hash'));
});

test('what an operator types names the key', t => {
  const { id, text } = createApiKeyToken();
  for (const typed of [id, `mk_${id}`, text]) t.is(apiKeyIdOf(typed), id);
  t.is(apiKeyIdOf('else'), 'else');
});
