/** Panels of what callers see, and what waits for whom. */
import type { Page, Row } from './panels.ts';

const NOW: Row = {
  title: 'Now',
  panels: [
    {
      title: 'Replicas ready',
      says: 'Control planes whose /readyz is 200.',
      unit: 'short',
      number: true,
      queries: [
        {
          expr: 'count(up{job="matting-control"} == 1) - (count(max by (instance) (matting_control_unready) == 1) or vector(0))',
        },
      ],
    },
    {
      title: 'Nodes that take images',
      says: '0: nothing is cut out.',
      unit: 'short',
      number: true,
      queries: [{ expr: 'max(matting_control_nodes{state="routable"})' }],
    },
    {
      title: 'Jobs that wait',
      says: 'For a node, over all replicas.',
      unit: 'short',
      number: true,
      queries: [{ expr: 'max(matting_control_queue_jobs)' }],
    },
    {
      title: 'Oldest of them',
      says: 'Above a minute for five: too few nodes.',
      unit: 's',
      number: true,
      queries: [{ expr: 'max(matting_control_queue_oldest_age_seconds)' }],
    },
    {
      title: 'Errors of the API',
      says: 'Share of requests answered with 5xx, 5 minutes.',
      unit: 'percentunit',
      number: true,
      queries: [{ expr: 'matting:http_errors:ratio_rate5m' }],
    },
    {
      title: 'Jobs failed by the service',
      says: 'Share of the jobs that ended, 5 minutes; nobody paid for them.',
      unit: 'percentunit',
      number: true,
      queries: [{ expr: 'matting:jobs_failed_by_service:ratio_rate5m' }],
    },
  ],
};

const CALLERS: Row = {
  title: 'Callers',
  panels: [
    {
      title: 'Requests by status',
      says: 'Answers of the public port.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (status) (rate(matting_control_http_requests_total[5m]))',
          legend: '{{status}}',
        },
      ],
    },
    {
      title: 'Refusals by code',
      says: 'Of the API, by the code of docs/errors.md.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (code) (rate(matting_control_http_requests_total{code!=""}[5m])) or vector(0)',
          legend: '{{code}}',
        },
      ],
    },
    {
      title: 'Request duration, p99 by route',
      says: 'Waits for jobs included.',
      unit: 's',
      queries: [
        {
          expr: 'histogram_quantile(0.99, sum by (route, le) (rate(matting_control_http_request_duration_seconds_bucket[5m]))) >= 0',
          legend: '{{route}}',
        },
      ],
    },
    {
      title: 'Open connections, uploads, readers',
      says: '10,000, 256 and 1,024 at most a replica.',
      unit: 'short',
      queries: [
        { expr: 'sum(matting_control_http_connections)', legend: 'connections' },
        { expr: 'sum(matting_control_uploads)', legend: 'uploads' },
        { expr: 'sum(matting_control_uploads_waiting)', legend: 'uploads that wait' },
        { expr: 'sum(matting_control_result_readers)', legend: 'readers of results' },
      ],
    },
    {
      title: 'Connections ended at a bound',
      says: 'Slow readers, crowds without a key, pipelined requests, the 10,001st.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (cause) (rate(matting_control_http_connections_ended_total[5m])) or vector(0)',
          legend: '{{cause}}',
        },
        {
          expr: 'sum(rate(matting_control_http_connections_dropped_total[5m]))',
          legend: 'dropped unread',
        },
      ],
    },
    {
      title: 'Downloads of image_url',
      says: 'By how they ended; 64 under way at most a replica.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (outcome) (rate(matting_control_source_fetches_total[5m])) or vector(0)',
          legend: '{{outcome}}',
        },
        { expr: 'sum(matting_control_source_fetches_in_flight)', legend: 'under way' },
      ],
    },
  ],
};

const JOBS: Row = {
  title: 'Jobs',
  panels: [
    {
      title: 'Jobs that ended',
      says: 'By outcome and mode.',
      unit: 'reqps',
      queries: [{ expr: 'matting:jobs:rate5m', legend: '{{outcome}} {{mode}}' }],
    },
    {
      title: 'From submission to the end',
      says: 'Of jobs that succeeded.',
      unit: 's',
      queries: [
        { expr: 'matting:job_duration_seconds:p50_5m >= 0', legend: 'p50 {{mode}}' },
        { expr: 'matting:job_duration_seconds:p99_5m >= 0', legend: 'p99 {{mode}}' },
      ],
    },
    {
      title: 'From submission to a node, p95',
      says: 'What more nodes would shorten.',
      unit: 's',
      queries: [{ expr: 'matting:job_wait_seconds:p95_5m >= 0', legend: '{{mode}}' }],
    },
    {
      title: 'Queue',
      says: 'Megapixels that wait, and the bound at which 503 begins.',
      unit: 'short',
      queries: [
        { expr: 'max(matting_control_queue_megapixels)', legend: 'megapixels' },
        { expr: 'max(matting_control_queue_megapixels_max)', legend: 'bound' },
        { expr: 'max(matting_control_queue_jobs)', legend: 'jobs' },
      ],
    },
    {
      title: 'Attempts on nodes',
      says: 'Refused costs nothing; lost, node-fault and local-fault are tried again.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (outcome) (rate(matting_control_attempts_total[5m]))',
          legend: '{{outcome}}',
        },
      ],
    },
    {
      title: 'Leases lost and taken over',
      says: 'Above 0: a replica died or stood still.',
      unit: 'reqps',
      queries: [
        { expr: 'sum(rate(matting_control_leases_lost_total[5m]))', legend: 'lost' },
        { expr: 'sum(rate(matting_control_takeovers_total[5m]))', legend: 'taken over' },
      ],
    },
  ],
};

const TOLD: Row = {
  title: 'Notifications and mails',
  panels: [
    {
      title: 'Notifications',
      says: 'Attempts by how they ended.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (outcome) (rate(matting_control_webhook_attempts_total[5m])) or vector(0)',
          legend: '{{outcome}}',
        },
      ],
    },
    {
      title: 'Oldest that is due',
      says: 'A minute is late for a notification, ten for a mail.',
      unit: 's',
      queries: [
        { expr: 'max(matting_control_webhooks_oldest_due_seconds)', legend: 'notification' },
        { expr: 'max(matting_control_mails_oldest_due_seconds)', legend: 'mail' },
      ],
    },
    {
      title: 'Waiting',
      says: 'Due and not sent yet, and under way.',
      unit: 'short',
      queries: [
        { expr: 'max(matting_control_webhooks_due)', legend: 'notifications due' },
        { expr: 'sum(matting_control_webhooks_in_flight)', legend: 'under way' },
        { expr: 'max(matting_control_mails_waiting)', legend: 'mails' },
      ],
    },
  ],
};

const INSIDE: Row = {
  title: 'Inside the control planes',
  panels: [
    {
      title: 'Database',
      says: "Requests that wait for their account's turn.",
      unit: 'short',
      queries: [{ expr: 'sum by (instance) (matting_control_database_waiting)' }],
    },
    {
      title: 'Removal overdue',
      says: 'Since when the oldest that is to be removed is due.',
      unit: 's',
      queries: [
        { expr: 'max by (step) (matting_control_sweep_overdue_seconds)', legend: '{{step}}' },
      ],
    },
    {
      title: 'Event loop, p99',
      says: 'Above a second for five minutes: swap, stolen CPU, a slow disk.',
      unit: 's',
      queries: [
        {
          expr: 'nodejs_eventloop_lag_p99_seconds{job="matting-control"}',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Processor time',
      says: 'Cores in use.',
      unit: 'short',
      queries: [
        {
          expr: 'rate(process_cpu_seconds_total{job="matting-control"}[5m])',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Memory',
      says: 'Resident, by replica.',
      unit: 'bytes',
      queries: [
        {
          expr: 'process_resident_memory_bytes{job="matting-control"}',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Versions',
      says: 'What runs: two lines while an upgrade rolls.',
      unit: 'short',
      queries: [{ expr: 'count by (version) (matting_control_info)', legend: '{{version}}' }],
    },
  ],
};

export const SERVICE: Page = {
  uid: 'matting-service',
  title: 'Matting: service',
  says: 'What callers of the API see, and what waits for whom.',
  from: 'now-6h',
  rows: [NOW, CALLERS, JOBS, TOLD, INSIDE],
};
