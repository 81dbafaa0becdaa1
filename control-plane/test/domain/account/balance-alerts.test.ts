import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type AlertState,
  alertStep,
  lowBalanceBody,
  TOLD_AGAIN_MS,
  thresholdsOf,
} from '../../../src/domain/account/balance-alerts.ts';
import { lowBalanceMail } from '../../../src/domain/account/balance-mail.ts';

const NOW = 1_800_000_000_000;
const told = (agoMs: number, credits: number): AlertState => ({
  threshold: 10,
  told: { atMs: NOW - agoMs, credits },
});
const has = (available: number, reserved = 0) => ({ available, reserved });

test('a threshold is told at it and below, and armed above it', () => {
  const armed: AlertState = { threshold: 10, told: null };
  assert.equal(alertStep(armed, has(11), NOW), 'none');
  assert.equal(alertStep(armed, has(10), NOW), 'tell');
  assert.equal(alertStep(armed, has(0), NOW), 'tell');
  assert.equal(alertStep(told(5, 10), has(10), NOW), 'none');
  assert.equal(alertStep(told(5, 10), has(11), NOW), 'arm', 'credits were added');
  assert.equal(alertStep(told(5, 12), has(11, 1), NOW), 'none', 'those of a job came back');
  assert.equal(alertStep(told(TOLD_AGAIN_MS, 12), has(11, 1), NOW), 'arm');
  assert.equal(alertStep({ threshold: 0, told: null }, has(0, 5), NOW), 'tell');
});

test('thresholds are read from what people type', () => {
  assert.deepEqual(thresholdsOf(['5', ' 100', '', '5']), [100, 5]);
  assert.deepEqual(thresholdsOf([]), []);
  assert.equal(thresholdsOf(['5', 'x']), undefined);
});

test('what is told names the account, the threshold and what is left', () => {
  const low = {
    accountId: 'id',
    accountName: 'Shop\r\nBcc: x@y.test',
    threshold: 2000,
    balances: has(1234, 5),
    atMs: NOW,
  };
  const { data, timestamp, event_id } = JSON.parse(lowBalanceBody('an-event', low));
  assert.equal(event_id, 'an-event');
  assert.equal(timestamp, new Date(NOW).toISOString());
  assert.deepEqual(data.credits, { available: 1234, reserved: 5 });
  for (const language of ['en', 'zh-CN', null]) {
    const { subject, text } = lowBalanceMail(low, language, 'https://m.example/account');
    assert.doesNotMatch(subject, /[\r\n]/, 'no header is added');
    assert.match(subject, /1,234/);
    assert.match(text, /2,000/);
    assert.match(text, /https:\/\/m\.example\/account\/credits/);
  }
});
