import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  apiKeyIdOf,
  createApiKeyToken,
  hashSecret,
  parseApiKeyToken,
  secretMatches,
} from '../../../src/store/accounts/api-key-token.ts';

test('any single changed character is noticed without a database', () => {
  const { text } = createApiKeyToken();
  for (let at = 0; at < text.length; at++) {
    const changed = text.slice(0, at) + (text[at] === 'a' ? 'b' : 'a') + text.slice(at + 1);
    assert.equal(parseApiKeyToken(changed), undefined, `at ${at}`);
  }
  const [one, two] = [text.slice(0, 20), text.slice(20)];
  for (const wrong of [one, two, two + one, ` ${text}`, `${text}\n`, text.replaceAll('_', '-')]) {
    assert.equal(parseApiKeyToken(wrong), undefined);
  }
});

test('keys have the documented form and are never the same', () => {
  const tokens = Array.from({ length: 500 }, () => createApiKeyToken());
  for (const token of tokens) {
    assert.match(token.text, /^mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
    assert.deepEqual(parseApiKeyToken(token.text), { id: token.id, secret: token.secret });
  }
  assert.equal(new Set(tokens.map(({ id }) => id)).size, 500);
  assert.equal(new Set(tokens.map(({ secret }) => secret)).size, 500);
});

test('a secret matches its own hash alone', () => {
  const { secret } = createApiKeyToken();
  assert.equal(secretMatches(secret, hashSecret(secret)), true);
  assert.equal(secretMatches(secret, hashSecret(`${secret}0`)), false);
  assert.equal(secretMatches(secret, ''), false);
  assert.equal(secretMatches(secret, 'no hash'), false);
});

test('what an operator types names the key', () => {
  const { id, text } = createApiKeyToken();
  for (const typed of [id, `mk_${id}`, text]) assert.equal(apiKeyIdOf(typed), id);
  assert.equal(apiKeyIdOf('else'), 'else');
});
