import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  isIpInNetworks,
  parseKeyNetwork,
  refusalOfKey,
} from '../../../src/services/keys/key-access.ts';

describe('the networks of a key', () => {
  const good: readonly (readonly [text: string, stored: string])[] = [
    ['10.0.0.0/8', '10.0.0.0/8'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['192.0.2.7', '192.0.2.7/32'],
    ['2001:DB8:0::/32', '2001:db8::/32'],
    ['::/0', '::/0'],
    ['::1', '::1/128'],
    ['2001:db8:0:0:1::7', '2001:db8::1:0:0:7/128'],
    ['fe80::/10', 'fe80::/10'],
  ];
  for (const [text, stored] of good) {
    it(`takes ${text}`, () => {
      assert.equal(parseKeyNetwork(text), stored);
      assert.equal(parseKeyNetwork(stored), stored, 'as it is stored');
    });
  }

  const bad = ['', 'x', '10.0.0.1/8', '10.0.0.0/33', '10.0.0.0/', '10.0.0/8', '2001:db8::1/32'];
  bad.push(
    '::/129',
    '010.0.0.0/8',
    '10.0.0.0/8 ',
    'fe80::1%eth0',
    '::ffff:10.0.0.0/104',
    '1.2.3.4/-1',
  );
  for (const text of bad) {
    it(`does not take "${text}"`, () => assert.equal(parseKeyNetwork(text), undefined));
  }

  it('are compared with addresses of both families, mapped ones too', () => {
    const networks = ['10.0.0.0/8', '2001:db8::/32'];
    for (const inside of ['10.255.0.1', '::ffff:10.1.1.1', '::FFFF:10.1.1.1', '2001:db8::5']) {
      assert.ok(isIpInNetworks(inside, networks), inside);
    }
    for (const outside of ['11.0.0.1', '::ffff:11.0.0.1', '2001:db9::5', '::a00:1', '', 'x']) {
      assert.ok(!isIpInNetworks(outside, networks), outside);
    }
    assert.ok(isIpInNetworks('fe80::1%eth0', ['fe80::/10']));
  });
});

describe('what a key may do', () => {
  it('is everything without a policy', () => {
    for (const scope of ['submit', 'read', 'account'] as const) {
      assert.equal(refusalOfKey({}, scope, ''), undefined);
    }
  });

  it('is what its scopes name, from its networks', () => {
    const policy = { scopes: ['read'], networks: ['192.0.2.0/24'] } as const;
    assert.equal(refusalOfKey(policy, 'read', '192.0.2.9'), undefined);
    assert.match(refusalOfKey(policy, 'submit', '192.0.2.9') ?? '', /scope submit/);
    assert.match(refusalOfKey(policy, 'read', '192.0.3.9') ?? '', /from 192\.0\.3\.9/);
    assert.match(refusalOfKey(policy, 'read', '') ?? '', /an unknown address/);
    assert.match(refusalOfKey({ scopes: [] }, 'read', '192.0.2.9') ?? '', /scope read/);
  });
});
