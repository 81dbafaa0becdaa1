import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { Passwords, passwordFaultOf } from './passwords.ts';

const test = ava.serial;

/** Costs next to nothing, since the stored text has the parameters of the check. */
const CHEAP = `$argon2id$v=19$m=8,t=1,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`;
/** More than the slots, and more than half of the waiting room. */
const HANDS = 40;

/** Starts hashes of strangers and notes the order in which they end, each with its address. */
function hashesOf(passwords: Passwords, addresses: readonly string[], ended: string[]) {
  return addresses.map(address =>
    passwords.verify('a guess', CHEAP, address).then(
      () => ended.push(address),
      (error: { code?: string }) => ended.push(`${address} ${error.code}`),
    ),
  );
}

test('slots of hashing › are shared by network: many addresses of one are one', async t => {
  const passwords = new Passwords();
  const ended: string[] = [];
  const hands = Array.from({ length: HANDS }, (_, index) => `2001:db8:0:1::${index}`);
  const others = hashesOf(passwords, hands, ended);
  await until('one that waits', () => passwords.waiting > 0);
  const own = hashesOf(passwords, ['192.0.2.1'], ended);
  await Promise.all([...others, ...own]);
  // One network has one of the two slots, and half of the waiting room.
  t.true(ended.filter(one => one.includes('SERVICE_UNAVAILABLE')).length >= HANDS - 33);
  const served = ended.filter(one => !one.includes(' '));
  t.true(served.indexOf('192.0.2.1') <= 2, served.join());
});

test('slots of hashing › of who is known are not behind those of strangers, from however many networks', async t => {
  const passwords = new Passwords();
  const ended: string[] = [];
  const hands = Array.from({ length: 2 * HANDS }, (_, index) => `192.0.2.${index}`);
  const others = hashesOf(passwords, hands, ended);
  await until('as many that wait', () => passwords.waiting >= HANDS);
  t.false(await passwords.verify('theirs', CHEAP, '192.0.2.1', 'a person'));
  t.true(passwords.waiting > 0, 'strangers waited longer');
  await Promise.all(others);
});

test('slots of hashing › of who is known are shared by person', async t => {
  const passwords = new Passwords();
  const order: string[] = [];
  const run = async (person: string) => {
    await passwords.verify('a password', CHEAP, '192.0.2.1', person);
    order.push(person);
  };
  const many = Array.from({ length: 8 }, () => run('one'));
  await Promise.all([...many, run('another')]);
  // One hash was running, and one more was the first to wait.
  t.true(order.indexOf('another') <= 2, order.join());
});

const MAIL = 'mina.example@shop.example';

const COMMON = [
  'iloveyouiloveyou1',
  'ILoveYouIloveyou!!',
  'iloveyou1iloveyou1',
  'iloveyouiloveyouilove',
  'welcomewelcome!',
  'welcomewelcome2026!',
  'welcomewelcomewel',
  'passwordpasswordpassword',
  'password1password1password1',
  'PasswordPassword',
  'letmeinletmein',
  '123123123123a',
  '123123123123',
  'abcabcabcabcabc',
  'qweqweqweqwe!1',
  'adminadminadmin',
  'admin2026admin2026',
  'aaaaaaaaaaaab',
  'password123456',
];
for (const password of COMMON) {
  test(`the rule › ${password} is common`, async t => {
    t.is(await passwordFaultOf(password, MAIL), 'common');
  });
}

for (const password of [
  'correct horse battery staple',
  'kTq7-pW2x-9fLm',
  'zrmbqtzrmbqt',
  'zrmbqtzrmbqt1!',
  'my love is a red rose',
  'welcome to my garden',
  '我喜欢在河边散步看日落和星星',
  '0451-7723-9918',
]) {
  test(`the rule › ${password} may be set`, async t => {
    t.is(await passwordFaultOf(password, MAIL), undefined);
  });
}

test('the rule › lengths, and the mail itself', async t => {
  t.is(await passwordFaultOf('kTq7-pW2x-9', MAIL), 'tooShort');
  t.is(await passwordFaultOf('kTq7-'.repeat(26), MAIL), 'tooLong');
  t.is(await passwordFaultOf('mina.example12', MAIL), 'likeMail');
});
