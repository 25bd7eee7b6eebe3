// A schedule in words. What it cannot say in a few of them is shown as it is written, and nothing
// else: words that are nearly right would be worse than none.
import { count, full, seconds } from "./words.js";

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const dayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const months = ["", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const monthNames = ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const short = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *" };

// inWords is a schedule as TaskStatus.Schedule has it, in words; "": there are none.
export function inWords(schedule) {
  if (schedule === "on demand") return "only if it is triggered";
  if (schedule.startsWith("every ")) return everyWords(schedule.slice(6));
  if (schedule.startsWith("at ")) return Number.isFinite(seconds(schedule.slice(3))) ? `once, at ${full(seconds(schedule.slice(3)))}` : "";
  const cron = /^cron (?:(?:CRON_)?TZ=(\S+) )?(.+)$/.exec(schedule);
  if (!cron) return "";
  const words = cronWords((short[cron[2]] ?? cron[2]).split(" "));
  return words && `${words}, ${cron[1] ?? "UTC"}`;
}

function everyWords(length) {
  const units = [["h", "hour"], ["m", "minute"], ["s", "second"], ["ms", "millisecond"]];
  const parts = [...length.matchAll(/(\d+(?:\.\d+)?)(ms|h|m|s)/g)];
  if (parts.map((p) => p[0]).join("") !== length || parts.some((p) => p[1].includes("."))) return "";
  const told = parts.filter((p) => Number(p[1]) > 0).map((p) => [Number(p[1]), units.find((u) => u[0] === p[2])[1]]);
  if (told.length === 0) return "";
  if (told.length === 1 && told[0][0] === 1) return `every ${told[0][1]}`;
  return `every ${told.map(([n, unit]) => count(n, unit)).join(" ")}`;
}

// list joins names: "a", "a and b", "a, b and c".
export const list = (names) => (names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0] ?? "");

const two = (n) => String(n).padStart(2, "0");
const isNumber = (field, most) => /^\d{1,2}$/.test(field) && Number(field) <= most;
const isList = (field, most) => field.split(",").every((n) => isNumber(n, most)) && field.split(",").length <= 6;
const step = (field) => /^\*\/([1-9]\d?)$/.exec(field)?.[1];
const range = (field, most) => { const r = /^(\d{1,2})-(\d{1,2})$/.exec(field); return r && Number(r[2]) <= most && r; };
const isAll = (field) => field === "*" || field === "?";

function cronWords(fields) {
  if (fields.length !== 5) return "";
  const [minute, hour, day, month, weekday] = fields;
  const fixed = isList(minute, 59) && isList(hour, 23);
  const time = timeWords(minute, hour);
  const which = dayWords(day, month, weekday, fixed);
  return time && which !== null ? [time, which].filter(Boolean).join(" ") : "";
}

function timeWords(minute, hour) {
  if (isAll(minute) && isAll(hour)) return "every minute";
  if (step(minute) && isAll(hour)) return 60 % step(minute) === 0 ? `every ${step(minute) === "1" ? "minute" : count(Number(step(minute)), "minute")}` : "";
  if (!isList(minute, 59)) return "";
  if (isList(hour, 23)) {
    const times = hour.split(",").flatMap((h) => minute.split(",").map((m) => `${two(h)}:${two(m)}`));
    return times.length <= 6 ? `at ${list(times)}` : "";
  }
  const past = minute === "0" ? "on the hour" : `at ${minute.includes(",") ? "minutes" : "minute"} ${list(minute.split(","))}`;
  if (isAll(hour)) return minute === "0" ? "every hour, on the hour" : `every hour, ${past}`;
  if (step(hour)) return 24 % step(hour) === 0 ? `every ${step(hour) === "1" ? "hour" : count(Number(step(hour)), "hour")} from 00:00, ${past}` : "";
  const hours = range(hour, 23);
  return hours ? `every hour from ${two(hours[1])} to ${two(hours[2])} h, ${past}` : "";
}

// named reads a field of numbers or names, or a range of them; null: it is something else.
function named(field, short, long, most) {
  const number = (text) => (short.includes(text.toUpperCase()) && text ? short.indexOf(text.toUpperCase()) : isNumber(text, most) ? Number(text) : -1);
  const names = [];
  for (const part of field.split(",")) {
    const ends = part.split("-").map(number);
    if (ends.length > 2 || ends.some((n) => n < 0 || !long[n])) return null;
    names.push(ends.map((n) => long[n]).join(" to "));
  }
  return list(names);
}

// dayWords says on which days; null: it cannot.
function dayWords(day, month, weekday, fixed) {
  const parts = [];
  if (!isAll(day)) {
    if (!isList(day, 31)) return null;
    parts.push(`on ${day.includes(",") ? "days" : "day"} ${list(day.split(","))} of the month`);
  }
  if (!isAll(weekday)) {
    const words = named(weekday, dayNames, days, 7);
    if (words === null) return null;
    parts.push(`${isAll(day) ? "on" : "and on each"} ${words}`);
  }
  if (parts.length === 0 && fixed) parts.push("every day");
  if (!isAll(month)) {
    const words = named(month, monthNames, months, 12);
    if (words === null) return null;
    parts.push(`in ${words}`);
  }
  return parts.join(" ");
}
