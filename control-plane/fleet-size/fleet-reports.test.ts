/** Reports whose answers are lost, and the rows that their statements read. */
import { countRows } from '@matting/core/test/counting-rows.ts';
import { loseAnswers } from '@matting/core/test/losing-answers.ts';
import ava from 'ava';
import { FLEET_SIZE_SUITE } from './test/fleet-size-suite.ts';

loseAnswers(ava, FLEET_SIZE_SUITE);
await countRows(ava.serial, FLEET_SIZE_SUITE);
