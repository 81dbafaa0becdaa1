/** Which passwords may be set: what everybody tries first may not, however it is repeated. */
import test from 'ava';
import { passwordFaultOf } from '../../src/identity/passwords.ts';

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
  test(`${password} is common`, async t => {
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
  test(`${password} may be set`, async t => {
    t.is(await passwordFaultOf(password, MAIL), undefined);
  });
}

test('lengths, and the mail itself', async t => {
  t.is(await passwordFaultOf('kTq7-pW2x-9', MAIL), 'tooShort');
  t.is(await passwordFaultOf('kTq7-'.repeat(26), MAIL), 'tooLong');
  t.is(await passwordFaultOf('mina.example12', MAIL), 'likeMail');
});
