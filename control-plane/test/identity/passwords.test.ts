/** Turns of hashing: strangers share them by network, and who is known never waits behind them. */
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { Passwords } from '../../src/identity/passwords.ts';

const test = ava.serial;

/** More than the turns, and than half of the places to wait. */
const HANDS = 40;

/** Hashes of strangers, in the order in which they end; each knows where it came from. */
function hashesOf(passwords: Passwords, addresses: readonly string[], ended: string[]) {
  return addresses.map(address =>
    passwords.verify('a guess', null, address).then(
      () => ended.push(address),
      (error: { code?: string }) => ended.push(`${address} ${error.code}`),
    ),
  );
}

test('are shared by network: many addresses of one are one', async t => {
  const passwords = new Passwords();
  const ended: string[] = [];
  const hands = Array.from({ length: HANDS }, (_, index) => `2001:db8:0:1::${index}`);
  const others = hashesOf(passwords, hands, ended);
  while (passwords.waiting === 0) await delay(1);
  const own = hashesOf(passwords, ['192.0.2.1'], ended);
  await Promise.all([...others, ...own]);
  // The network alone has one turn of two, and half of the places to wait.
  t.true(ended.filter(one => one.includes('SERVICE_UNAVAILABLE')).length >= HANDS - 33);
  const served = ended.filter(one => !one.includes(' '));
  t.true(served.indexOf('192.0.2.1') <= 2, served.join());
});

test('of who is known are not behind those of strangers, from however many networks', async t => {
  const passwords = new Passwords();
  const ended: string[] = [];
  const hands = Array.from({ length: 2 * HANDS }, (_, index) => `192.0.2.${index}`);
  const others = hashesOf(passwords, hands, ended);
  while (passwords.waiting < HANDS) await delay(1);
  t.false(await passwords.verify('theirs', null, '192.0.2.1', 'a person'));
  t.true(passwords.waiting > 0, 'strangers waited longer');
  await Promise.all(others);
});

test('of who is known are shared by person', async t => {
  const passwords = new Passwords();
  const order: string[] = [];
  const run = async (person: string) => {
    await passwords.hash('a password', '192.0.2.1', person);
    order.push(person);
  };
  const many = Array.from({ length: 8 }, () => run('one'));
  await Promise.all([...many, run('another')]);
  // One was under way, and one more was the first to wait.
  t.true(order.indexOf('another') <= 2, order.join());
});
