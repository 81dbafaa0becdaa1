/** The nodes: what they do, what limits them, and the cards of those that have one. */
import type { Page, Row } from './panels.ts';

const NODES: Row = {
  title: 'Nodes',
  panels: [
    {
      title: 'Nodes by state',
      says: 'As the control planes see them.',
      unit: 'short',
      queries: [{ expr: 'max by (state) (matting_control_nodes)', legend: '{{state}}' }],
    },
    {
      title: 'Images finished',
      says: 'A second, by node.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (instance) (matting:node_images:rate5m{outcome="succeeded"})',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Images that failed',
      says: 'By node and code: faults of images and of the node.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (instance, code) (rate(matting_node_images_total{outcome!="succeeded"}[5m])) or vector(0)',
          legend: '{{instance}} {{code}}',
        },
      ],
    },
    {
      title: 'Places taken',
      says: 'Images in the node, of those that it takes at once.',
      unit: 'percentunit',
      queries: [
        {
          expr: 'matting_node_images_in_flight / matting_node_images_max',
          legend: '{{instance}} images',
        },
        {
          expr: 'matting_node_megapixels_in_flight / matting_node_megapixels_max',
          legend: '{{instance}} megapixels',
        },
      ],
    },
    {
      title: 'Refused before a byte',
      says: 'By code; control planes then ask another node.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (code) (rate(matting_node_admission_refused_total[5m])) or vector(0)',
          legend: '{{code}}',
        },
      ],
    },
    {
      title: 'Nodes refused by the registry',
      says: 'A wrong token, or two processes of one id.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (cause) (rate(matting_control_nodes_refused_total[5m])) or vector(0)',
          legend: '{{cause}}',
        },
      ],
    },
  ],
};

const STAGES: Row = {
  title: "Where an image's time goes",
  panels: [
    {
      title: 'Mean time by stage',
      says: 'Of images that succeeded: the stage that grows with the load is the one that limits.',
      unit: 's',
      columns: 12,
      queries: [
        {
          expr: 'sum by (stage) (rate(matting_node_stage_duration_seconds_sum[5m])) / (sum by (stage) (rate(matting_node_stage_duration_seconds_count[5m])) > 0)',
          legend: '{{stage}}',
        },
      ],
    },
    {
      title: 'Image duration, p95',
      says: 'From the call to its result taken, by output format.',
      unit: 's',
      columns: 12,
      queries: [
        {
          expr: 'histogram_quantile(0.95, sum by (output_format, le) (rate(matting_node_image_duration_seconds_bucket[5m]))) >= 0',
          legend: '{{output_format}}',
        },
      ],
    },
    {
      title: 'Engines busy',
      says: '1 is every engine of the model all the time.',
      unit: 'percentunit',
      queries: [
        {
          expr: 'matting:node_engines_busy:ratio_rate5m',
          legend: '{{instance}} {{model}} {{input_size}} {{role}}',
        },
      ],
    },
    {
      title: 'Picture workers busy',
      says: 'All busy while engines are not: too few cores for decoding and encoding.',
      unit: 'percentunit',
      queries: [
        {
          expr: 'matting_node_picture_workers_busy / matting_node_picture_workers',
          legend: '{{instance}}',
        },
      ],
    },
    {
      title: 'Images that wait in a node',
      says: 'For an engine, for a picture worker.',
      unit: 'short',
      queries: [
        {
          expr: 'sum by (instance, model) (matting_node_engine_queue_images)',
          legend: '{{instance}} {{model}}',
        },
        { expr: 'matting_node_picture_queue_images', legend: '{{instance}} picture workers' },
      ],
    },
  ],
};

const PROCESSES: Row = {
  title: 'Processes of the nodes',
  panels: [
    {
      title: 'Engines ready',
      says: 'Of those that there should be.',
      unit: 'short',
      queries: [
        {
          expr: 'matting_node_engines_ready',
          legend: '{{instance}} {{model}} {{input_size}} {{role}}',
        },
      ],
    },
    {
      title: 'Deaths and ends',
      says: 'Engines that died; picture workers ended by a file, time or memory.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (cause) (rate(matting_node_engine_deaths_total[5m])) or vector(0)',
          legend: 'engines {{cause}}',
        },
        {
          expr: 'sum by (cause) (rate(matting_node_picture_worker_ends_total[5m])) or vector(0)',
          legend: 'picture workers {{cause}}',
        },
      ],
    },
    {
      title: 'Memory',
      says: "Resident: engines, picture workers, the node's own process.",
      unit: 'bytes',
      queries: [
        {
          expr: 'sum by (instance) (matting_node_engine_resident_memory_bytes)',
          legend: '{{instance}} engines',
        },
        {
          expr: 'sum by (instance) (matting_node_picture_worker_resident_memory_bytes)',
          legend: '{{instance}} picture workers',
        },
        {
          expr: 'process_resident_memory_bytes{job="matting-node"}',
          legend: '{{instance}} main',
        },
      ],
    },
    {
      title: 'Bytes moved',
      says: 'Files received and results sent.',
      unit: 'Bps',
      queries: [
        { expr: 'sum(rate(matting_node_received_bytes_total[5m]))', legend: 'received' },
        { expr: 'sum(rate(matting_node_sent_bytes_total[5m]))', legend: 'sent' },
      ],
    },
    {
      title: 'Without a model of the plan',
      says: 'Images served so; above 0, results are worse than bought.',
      unit: 'reqps',
      queries: [
        {
          expr: 'sum by (model) (rate(matting_node_images_degraded_total[5m])) or vector(0)',
          legend: '{{model}}',
        },
      ],
    },
    {
      title: 'Not the first choice',
      says: '1: another execution provider or precision than the one asked for.',
      unit: 'short',
      queries: [
        {
          expr: 'max by (instance) (matting_node_execution_provider_fallback)',
          legend: '{{instance}} provider',
        },
        {
          expr: 'max by (instance) (matting_node_precision_fallback)',
          legend: '{{instance}} precision',
        },
      ],
    },
  ],
};

/** Metrics of NVIDIA's DCGM exporter, which operators of GPU hosts run beside the nodes. */
export const GPU_ROW_TITLE = 'GPUs (dcgm-exporter)';

const GPUS: Row = {
  title: GPU_ROW_TITLE,
  panels: [
    {
      title: 'Busy',
      says: 'Share of the time in which a kernel ran.',
      unit: 'percent',
      queries: [{ expr: 'DCGM_FI_DEV_GPU_UTIL', legend: '{{Hostname}} {{gpu}}' }],
    },
    {
      title: 'Memory in use',
      says: 'Of the device; engines hold theirs while they live.',
      unit: 'bytes',
      queries: [{ expr: 'DCGM_FI_DEV_FB_USED * 1024 * 1024', legend: '{{Hostname}} {{gpu}}' }],
    },
    {
      title: 'Xid errors',
      says: 'The last one of each device; not 0: the device fell out or is about to.',
      unit: 'short',
      queries: [{ expr: 'DCGM_FI_DEV_XID_ERRORS', legend: '{{Hostname}} {{gpu}}' }],
    },
    {
      title: 'Power',
      says: 'At its limit the clocks fall.',
      unit: 'watt',
      queries: [{ expr: 'DCGM_FI_DEV_POWER_USAGE', legend: '{{Hostname}} {{gpu}}' }],
    },
    {
      title: 'Temperature',
      says: 'Above what the card throttles at, images take longer.',
      unit: 'celsius',
      queries: [{ expr: 'DCGM_FI_DEV_GPU_TEMP', legend: '{{Hostname}} {{gpu}}' }],
    },
    {
      title: 'Clock',
      says: 'Of the multiprocessors.',
      unit: 'hertz',
      queries: [{ expr: 'DCGM_FI_DEV_SM_CLOCK * 1e6', legend: '{{Hostname}} {{gpu}}' }],
    },
  ],
};

export const FLEET: Page = {
  uid: 'matting-fleet',
  title: 'Matting: fleet',
  says: 'The inference nodes: what they do, what limits them, what died.',
  from: 'now-6h',
  rows: [NODES, STAGES, PROCESSES, GPUS],
};
