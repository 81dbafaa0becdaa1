/** Credits and what could be wrong with them. */
import type { Page, Row } from './panels.ts';

const CREDITS: Row = {
  title: 'Credits',
  panels: [
    {
      title: 'Charged, a day',
      says: 'An image that succeeds costs one credit; playgrounds cost none.',
      unit: 'short',
      number: true,
      queries: [
        {
          expr: 'sum(increase(matting_control_jobs_total{outcome="succeeded",mode!="playground"}[1d])) or vector(0)',
        },
      ],
    },
    {
      title: 'Released, a day',
      says: 'Jobs that failed: their credits went back.',
      unit: 'short',
      number: true,
      queries: [
        {
          expr: 'sum(increase(matting_control_jobs_total{outcome="failed",mode!="playground"}[1d])) or vector(0)',
        },
      ],
    },
    {
      title: 'Refused for want of credits, a day',
      says: 'Submissions answered with INSUFFICIENT_CREDITS or KEY_CAP_REACHED.',
      unit: 'short',
      number: true,
      queries: [
        {
          expr: 'sum(increase(matting_control_http_requests_total{status="402"}[1d])) or vector(0)',
        },
      ],
    },
    {
      title: 'Problems of the ledger',
      says: 'Not 0: credits check names them. Call somebody.',
      unit: 'short',
      number: true,
      queries: [{ expr: 'max(matting_control_ledger_audit_problems) or vector(0)' }],
    },
    {
      title: 'Last full check of the ledger',
      says: 'Two days are too long ago; none: it was never checked.',
      unit: 'dtdurations',
      number: true,
      queries: [{ expr: 'min(matting_control_ledger_audit_age_seconds{kind="full"})' }],
    },
    {
      title: 'Owners told of a low balance, a day',
      says: 'Each threshold once until credits come.',
      unit: 'short',
      number: true,
      queries: [{ expr: 'sum(increase(matting_control_low_balances_told_total[1d]))' }],
    },
  ],
};

const FLOW: Row = {
  title: 'Flow',
  panels: [
    {
      title: 'Credits charged and released',
      says: 'A minute, by what became of the job.',
      unit: 'short',
      columns: 12,
      queries: [
        {
          expr: '60 * sum by (outcome) (rate(matting_control_jobs_total{mode!="playground"}[5m]))',
          legend: '{{outcome}}',
        },
      ],
    },
    {
      title: 'Payments told of',
      says: 'paid_again is owed back; refused fits no order. orders show has both.',
      unit: 'short',
      columns: 12,
      queries: [
        {
          expr: 'sum by (outcome) (increase(matting_control_payment_notifications_total[1h])) or vector(0)',
          legend: '{{outcome}}',
        },
      ],
    },
  ],
};

export const MONEY: Page = {
  uid: 'matting-money',
  title: 'Matting: money',
  says: 'Credits charged and released, payments, and the checks of the ledger.',
  from: 'now-7d',
  rows: [CREDITS, FLOW],
};
